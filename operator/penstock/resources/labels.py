"""Labels and metadata of everything Penstock makes.

Selectors use two fixed labels and nothing from the user: a Deployment's selector can never change, and a label that a
user may edit must not decide which pods a Service reaches. Nothing is copied from the backend's own labels and
annotations: they often belong to the tool that applied it, which would then take the children for its own.
"""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.resources.objects import Object

MANAGED_BY = "app.kubernetes.io/managed-by"
BACKEND = "serving.penstock.dev/backend"
MANAGER = "penstock"


def selector(backend: LLMBackend) -> dict[str, str]:
    """Return the labels that tell a backend's pods from all others."""
    return {BACKEND: backend.metadata.name, MANAGED_BY: MANAGER}


def labels(backend: LLMBackend) -> dict[str, str]:
    """Return the labels of every child and pod: the selector's and the two that tools show."""
    return {
        "app.kubernetes.io/name": "llmbackend",
        "app.kubernetes.io/instance": backend.metadata.name,
        **selector(backend),
    }


def metadata(backend: LLMBackend, name: str) -> Object:
    """Return a child's metadata: its place, its labels, and the backend as its controller.

    The owner reference is what lets the cluster's garbage collector delete the children, so no finalizer is needed.
    """
    return {
        "name": name,
        "namespace": backend.metadata.namespace,
        "labels": labels(backend),
        "ownerReferences": [
            {
                "apiVersion": backend.api_version,
                "kind": backend.kind,
                "name": backend.metadata.name,
                "uid": backend.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
