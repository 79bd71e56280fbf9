"""What an apply cannot take back: entries that others add to maps and lists which must be ours alone.

Server-side apply leaves added entries to whoever added them, which is right for labels, annotations or a template, and
wrong where one more entry changes the meaning of ours: an added selector label leaves a Service without pods, and an
edited port becomes a second port beside the one that is applied again, which may even make the object invalid. For
these few fields the whole value is put back, by a merge patch, when the apply has left an entry or was refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.kube.kinds import SERVICE, Kind
from penstock.resources.objects import Object


class _Field(NamedTuple):
    """A field below `spec` that is ours alone, and how to name its entries."""

    name: str
    entries: Callable[[Any], set[object]]


_WHOLE: dict[Kind, tuple[_Field, ...]] = {
    SERVICE: (
        _Field("selector", set),
        _Field("ports", lambda ports: {(port["port"], port.get("protocol", "TCP")) for port in ports}),
    ),
}


def repair(kind: Kind, desired: Object, held: Object) -> Object | None:
    """Return the merge patch that removes added entries from an object, or None when there are none."""
    spec: Object = {}
    for field in _WHOLE.get(kind, ()):
        value = desired["spec"][field.name]
        present = held["spec"].get(field.name, type(value)())
        added = field.entries(present) - field.entries(value)
        if added and isinstance(value, dict):
            spec[field.name] = {**dict.fromkeys(added), **value}
        elif added:
            spec[field.name] = value
    return {"spec": spec} if spec else None
