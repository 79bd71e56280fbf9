"""Whether an answer is what was asked for.

Between the API server and the operator there may be a proxy that answers 200 with something of its own. Everything
else here takes it for granted that an object has a name, a uid and a version, so an answer without them ends as a
failure of the API server, which is waited out, and not as a defect of the operator.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.resources.objects import Object

IDENTITY = ("name", "uid", "resourceVersion")


def fault_of(verb: str, document: Object) -> str:
    """Tell what keeps a document from being the answer to a request; empty when nothing does."""
    match verb:
        case "list":
            return _fault_of_page(document)
        case "delete" | "read":
            # Nobody looks into the one, and what is read lies outside of all kinds.
            return ""
    return _fault_of_object(document)


def _fault_of_object(document: object) -> str:
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if not isinstance(metadata, dict):
        return "an object without metadata"
    missing = [name for name in IDENTITY if not isinstance(metadata.get(name), str)]
    return f"an object without metadata.{missing[0]}" if missing else ""


def _fault_of_page(document: Object) -> str:
    items: object = document.get("items")
    if not isinstance(items, Sequence) or isinstance(items, str) or not isinstance(document.get("metadata"), dict):
        return "something that is no list"
    return next(filter(None, map(_fault_of_object, items)), "")
