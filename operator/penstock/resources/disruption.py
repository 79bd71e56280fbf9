"""How many replicas the cluster may take away at a time, when it drains nodes or evicts for other reasons.

A share instead of a number: it follows the replicas by itself, so a scaled backend costs no write, and it is rounded
up, so at least one replica may always go. With a single replica a budget could only block a drain for ever.
"""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.api.rollout import DisruptionBudget
from penstock.resources.labels import metadata, selector
from penstock.resources.objects import Object

DEFAULT_MAX_UNAVAILABLE = "10%"


def name(backend: LLMBackend) -> str:
    """Return the PodDisruptionBudget's name."""
    return backend.metadata.name


def build(backend: LLMBackend) -> Object | None:
    """Return the PodDisruptionBudget, or None where there is to be none."""
    disruption = backend.spec.disruption
    if disruption.budget is DisruptionBudget.DISABLED:
        return None
    maximum: int | str | None = disruption.max_unavailable
    if maximum is None:
        if backend.spec.replicas <= 1:
            return None
        maximum = DEFAULT_MAX_UNAVAILABLE
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(backend, name(backend)),
        "spec": {
            "maxUnavailable": maximum,
            # A replica that is not ready serves nobody: waiting for it would only hold up the drain.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector(backend)},
        },
    }
