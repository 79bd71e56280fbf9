"""The address of a backend: a Service that leads to the limiters of its ready replicas, never to an engine."""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.api.replica import API_PORT
from penstock.resources.labels import metadata, selector
from penstock.resources.objects import Object

HTTP_PORT = 80


def name(backend: LLMBackend) -> str:
    """Return the Service's name."""
    return backend.metadata.name


def url(backend: LLMBackend) -> str:
    """Return where clients in the cluster send requests, whatever the cluster's domain is."""
    port = backend.spec.service.port
    return f"http://{name(backend)}.{backend.metadata.namespace}.svc" + ("" if port == HTTP_PORT else f":{port}")


def build(backend: LLMBackend) -> Object:
    """Return the Service.

    `targetPort` is a number: named ports of native sidecars are not resolved by every supported Kubernetes release.
    """
    service = backend.spec.service
    meta = metadata(backend, name(backend))
    if service.annotations:
        meta["annotations"] = dict(service.annotations)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {
            "type": str(service.type),
            # The default, named so that an apply takes an edit back: a replica that drains must get nothing new.
            "publishNotReadyAddresses": False,
            "selector": selector(backend),
            "ports": [
                {"name": "http", "port": service.port, "targetPort": API_PORT, "protocol": "TCP"},
            ],
        },
    }
