"""Reads fields of objects that other programs wrote, without trusting their shape.

A status is written by controllers and kubelets of many releases. What is missing or of another type than expected reads
as empty, so that an odd object makes a message poorer and never a reconcile fail.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.resources.objects import Object


def mapping(obj: object, *path: str) -> Object:
    """Return the object at a path below another; empty when there is none."""
    value = _at(obj, path)
    return value if isinstance(value, dict) else {}


def mappings(obj: object, *path: str) -> Sequence[Object]:
    """Return the objects of the list at a path; what is no object is left out."""
    value = _at(obj, path)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list | tuple) else []


def texts(obj: object, *path: str) -> Sequence[str]:
    """Return the texts of the list at a path; what is no text is left out."""
    value = _at(obj, path)
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list | tuple) else []


def text(obj: object, *path: str) -> str:
    """Return the text at a path; empty when there is none."""
    value = _at(obj, path)
    return value if isinstance(value, str) else ""


def number(obj: object, *path: str) -> int:
    """Return the number at a path; 0 when there is none, as absent counts are meant, and never less."""
    value = _at(obj, path)
    return max(value, 0) if isinstance(value, int) and not isinstance(value, bool) else 0


def flag(obj: object, *path: str) -> bool:
    """Tell whether the value at a path is true."""
    return _at(obj, path) is True


def _at(obj: object, path: Sequence[str]) -> object:
    for name in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(name)
    return obj
