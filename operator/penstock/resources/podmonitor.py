"""What a Prometheus of the prometheus-operator scrapes: the limiter's own metrics, and the engine's through it.

The port goes by name here, which Prometheus resolves itself from the pod, sidecars included: releases of PodMonitor
that do not know port numbers yet would drop the number and then scrape every port there is.

Series carry the path they come from. Else `up` of both paths would be one series, in which the engine that does not
answer and the limiter that does take turns.
"""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.api.exposure import PodMonitorMode
from penstock.resources.facts import ClusterFacts
from penstock.resources.labels import BACKEND, metadata, selector
from penstock.resources.limiter import ADMIN_PORT_NAME
from penstock.resources.objects import Object

PATHS = ("/metrics", "/engine/metrics")


def name(backend: LLMBackend) -> str:
    """Return the PodMonitor's name."""
    return backend.metadata.name


def build(backend: LLMBackend, facts: ClusterFacts) -> Object | None:
    """Return the PodMonitor, or None where none is wanted or the kind is not served."""
    monitoring = backend.spec.monitoring
    if monitoring.pod_monitor is PodMonitorMode.DISABLED or not facts.pod_monitors:
        return None
    meta = metadata(backend, name(backend))
    # Installations of Prometheus choose their PodMonitors by label, and each by another one.
    meta["labels"] = {**(monitoring.labels or {}), **meta["labels"]}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": meta,
        "spec": {
            "selector": {"matchLabels": selector(backend)},
            "podTargetLabels": [BACKEND],
            "podMetricsEndpoints": [_endpoint(path) for path in PATHS],
        },
    }


def _endpoint(path: str) -> Object:
    named = {"sourceLabels": ["__metrics_path__"], "targetLabel": "metrics_path"}
    return {"port": ADMIN_PORT_NAME, "path": path, "relabelings": [named]}
