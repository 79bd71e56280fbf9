"""The replicas one by one: a headless Service whose name resolves to every ready replica.

Replicas find their peers by it, and what reads the limiters directly finds them; both work without the operator. It
leads to ready replicas only, since a request handed to a peer must find one that serves.
"""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.api.replica import API_PORT
from penstock.resources.labels import metadata, selector
from penstock.resources.objects import Object


def name(backend: LLMBackend) -> str:
    """Return the Service's name."""
    return f"{backend.metadata.name}-replicas"


def build(backend: LLMBackend) -> Object:
    """Return the Service.

    Clients resolve a headless Service to the pods themselves, so its port is the one on which the limiters listen.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(backend, name(backend)),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            # The defaults, named so that an apply takes an edit back.
            "publishNotReadyAddresses": False,
            "selector": selector(backend),
            "ports": [{"name": "http", "port": API_PORT, "targetPort": API_PORT, "protocol": "TCP"}],
        },
    }
