"""The identity of a backend's pods: one that may do nothing, without a token."""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.resources.labels import metadata
from penstock.resources.objects import Object


def name(backend: LLMBackend) -> str:
    """Return the ServiceAccount's name."""
    return backend.metadata.name


def build(backend: LLMBackend) -> Object:
    """Return the ServiceAccount."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(backend, name(backend)),
        "automountServiceAccountToken": False,
    }
