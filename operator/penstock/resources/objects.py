"""Kubernetes objects as plain dictionaries, and the few questions that are asked of all of them."""

from __future__ import annotations

from typing import Any, NamedTuple

Object = dict[str, Any]
"""One Kubernetes object as JSON: `apiVersion`, `kind`, `metadata` and the rest."""


class Key(NamedTuple):
    """Namespace and name: what identifies a backend to the queue, and any object within its kind."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def key_of(obj: Object) -> Key:
    """Return namespace and name of an object; the namespace of a cluster-scoped object is empty."""
    metadata = obj["metadata"]
    return Key(metadata.get("namespace", ""), metadata["name"])


def controller_of(obj: Object) -> Object | None:
    """Return the owner reference with `controller: true`, if there is one."""
    for reference in obj["metadata"].get("ownerReferences", ()):
        if reference.get("controller"):
            return dict(reference)
    return None


def is_controlled_by(obj: Object, uid: str) -> bool:
    """Tell whether the object's controller is the one with this uid."""
    controller = controller_of(obj)
    return controller is not None and controller.get("uid") == uid


def is_terminating(obj: Object) -> bool:
    """Tell whether deletion of the object has begun."""
    return "deletionTimestamp" in obj["metadata"]
