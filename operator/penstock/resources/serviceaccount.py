"""The identity of a backend's pods: one that may do nothing, without a token."""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.resources.labels import metadata
from penstock.resources.objects import Object


def name(backend: LLMBackend) -> str:
    """Return the ServiceAccount that the pods run as: the one the backend names, else its own."""
    return backend.spec.pod.service_account_name or backend.metadata.name


def build(backend: LLMBackend) -> Object | None:
    """Return the ServiceAccount, or None where the backend names another."""
    if backend.spec.pod.service_account_name is not None:
        return None
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(backend, name(backend)),
        "automountServiceAccountToken": False,
    }
