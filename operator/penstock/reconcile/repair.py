"""What an apply cannot take back: entries that others add to maps and lists which must be ours alone.

Server-side apply leaves added entries to whoever added them, which is right for labels, annotations or a template, and
wrong where one more entry changes the meaning of ours: an added selector label leaves a Service without pods, and an
edited port becomes a second port beside the one that is applied again, which may even make the object invalid. For
these few fields the whole value is put back, by a merge patch, when the apply has left an entry or was refused.

An entry can also be added where there may be one of a kind only: a probe with two handlers, a volume with two sources,
a variable with two values. Then each apply is refused as long as the entry is there, so the lists that hold such
choices are written whole as well, and only when an apply was refused.

A merge patch makes its author an owner beside the one who applies, and a field with two owners stays when one of them
no longer wants it. So what the patch has taken is given up after the apply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.kube.client import FIELD_MANAGER
from penstock.kube.kinds import DEPLOYMENT, SERVICE, Kind
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


POD_LISTS = ("initContainers", "containers", "volumes")


def replace(kind: Kind, desired: Object, held: Object) -> Object | None:
    """Return the merge patch to send when an apply was refused, or None when there is nothing it could mend."""
    if kind != DEPLOYMENT:
        return repair(kind, desired, held)
    pod = desired["spec"]["template"]["spec"]
    return {"spec": {"template": {"spec": {name: pod[name] for name in POD_LISTS if name in pod}}}}


def give_up(held: Object) -> Object | None:
    """Return the merge patch that ends the ownership merge patches have brought, or None when there is none."""
    metadata = held["metadata"]
    entries = metadata.get("managedFields", ())
    kept = [entry for entry in entries if (entry["manager"], entry["operation"]) != (FIELD_MANAGER, "Update")]
    if len(kept) == len(entries):
        return None
    # The list is written whole, so it must be the one that was read.
    return {"metadata": {"managedFields": kept, "resourceVersion": metadata["resourceVersion"]}}
