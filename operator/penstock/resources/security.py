"""Security contexts that meet the Pod Security level `restricted`, with a read-only root besides."""

from __future__ import annotations

from penstock.resources.objects import Object


def pod(*, group_id: int) -> Object:
    """Return the pod's security context; volumes belong to the engine's group, so that it can write to them."""
    return {
        "runAsNonRoot": True,
        "fsGroup": group_id,
        # Without this kubelet walks through the whole volume at every start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container(*, user_id: int, group_id: int) -> Object:
    """Return a container's security context."""
    return {
        "runAsNonRoot": True,
        "runAsUser": user_id,
        "runAsGroup": group_id,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
