"""The limiter's policy: what may change while replicas run, in a file that they re-read."""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.api.policy import POLICY_FILE, Policy
from penstock.resources.labels import metadata
from penstock.resources.objects import Object


def name(backend: LLMBackend) -> str:
    """Return the ConfigMap's name."""
    return f"{backend.metadata.name}-limiter"


def build(backend: LLMBackend) -> Object:
    """Return the ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(backend, name(backend)),
        "data": {POLICY_FILE: Policy.of(backend.spec).render()},
    }
