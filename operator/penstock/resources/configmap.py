"""The limiter's policy: what may change while replicas run, in a file that they re-read."""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.api.policy import POLICY_FILE, Policy
from penstock.resources.labels import metadata
from penstock.resources.objects import Object
from penstock.resources.settings import BuildSettings


def name(backend: LLMBackend) -> str:
    """Return the ConfigMap's name."""
    return f"{backend.metadata.name}-limiter"


def policy(backend: LLMBackend, settings: BuildSettings) -> str:
    """Return the policy's text, which is pushed as well."""
    return Policy.of(backend.spec, trusted_keys=settings.push_public_keys).render()


def build(backend: LLMBackend, settings: BuildSettings) -> Object:
    """Return the ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(backend, name(backend)),
        "data": {POLICY_FILE: policy(backend, settings)},
    }
