"""Who may reach the replicas: anybody their API, only the operator and scrapers the admin port.

Kubelet needs no rule for its probes and the preStop hook: traffic from a pod's own node is always allowed. Nothing is
said about what replicas may reach, since models, Redis and peers lie anywhere.
"""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.api.base import Toggle
from penstock.api.replica import ADMIN_PORT, API_PORT
from penstock.resources.labels import metadata, selector
from penstock.resources.objects import Object
from penstock.resources.settings import BuildSettings

NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
"""Every namespace carries it with its own name; the API server sees to that."""

SCRAPER_LABEL = "serving.penstock.dev/scraper"
"""An administrator sets it to `true` on a namespace whose pods may scrape."""

SCRAPERS = ("alloy", "grafana-agent", "opentelemetry-collector", "prometheus", "prometheus-agent", "vmagent")
"""Values of `app.kubernetes.io/name` that scrapers carry as their own installers set them up."""


def name(backend: LLMBackend) -> str:
    """Return the NetworkPolicy's name."""
    return backend.metadata.name


def build(backend: LLMBackend, settings: BuildSettings) -> Object | None:
    """Return the NetworkPolicy, or None where none is wanted."""
    if backend.spec.network_policy is Toggle.DISABLED:
        return None
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(backend, name(backend)),
        "spec": {
            "podSelector": {"matchLabels": selector(backend)},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"ports": [{"port": API_PORT, "protocol": "TCP"}]},
                {"ports": [{"port": ADMIN_PORT, "protocol": "TCP"}], "from": _admins(settings)},
            ],
        },
    }


def _admins(settings: BuildSettings) -> list[Object]:
    scrapers = {"key": "app.kubernetes.io/name", "operator": "In", "values": list(SCRAPERS)}
    return [
        {"namespaceSelector": {"matchLabels": {NAMESPACE_NAME_LABEL: settings.namespace}}},
        {"namespaceSelector": {"matchLabels": {SCRAPER_LABEL: "true"}}},
        {"namespaceSelector": {}, "podSelector": {"matchExpressions": [scrapers]}},
    ]
