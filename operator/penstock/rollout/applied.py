"""What one manager has applied to an object, read back from `managedFields`.

A live Deployment holds more than was applied: defaults the API server filled in, and what others have added. Applying
all of it would make it ours for ever. `managedFields` names the fields of each manager, so the template can be had back
as it was applied when its ControllerRevision is lost. Quantities come back in the API server's spelling, which is the
same to it.

The format, `FieldsV1`: `f:name` is a field, `k:{...}` the entry of a list with these key fields, `v:value` an entry of
a list that is a set, `.` the thing itself. Nothing below a field means all of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.resources.objects import Object

ITSELF = "."


def pod_template(deployment: Object, *, manager: str) -> Object | None:
    """Return the pod template as this manager has applied it; None when what is left of it could not run.

    Where `managedFields` say nothing of the manager, the template is returned as it is.

    Args:
        deployment: Read live: the cache holds none of this.
        manager: The field manager.
    """
    live = deployment["spec"]["template"]
    fields = _applied_by(deployment, manager)
    if fields is None:
        return dict(live)
    template = extract(live, fields.get("f:spec", {}).get("f:template", {ITSELF: {}}))
    return template if _can_run(template) else None


def extract(value: Any, fields: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
    """Return the part of a value that is named by `FieldsV1`.

    Args:
        value: The live value.
        fields: The fields below it.
    """
    if not fields:
        return value
    if isinstance(value, dict):
        names = [name.removeprefix("f:") for name in fields if name.startswith("f:")]
        return {name: extract(value[name], fields[f"f:{name}"]) for name in names if name in value}
    if isinstance(value, list):
        return [extract(entry, fields[name]) for entry in value if (name := _name_of(entry, fields)) is not None]
    return value


def _applied_by(obj: Object, manager: str) -> Mapping[str, Any] | None:
    for entry in obj["metadata"].get("managedFields", ()):
        if (entry.get("manager"), entry.get("operation"), entry.get("subresource", "")) == (manager, "Apply", ""):
            fields = entry.get("fieldsV1")
            return fields if isinstance(fields, dict) else None
    return None


def _name_of(entry: Any, fields: Mapping[str, Any]) -> str | None:  # noqa: ANN401 - any JSON value
    """Return how a list's entry is named among the fields; None when it is not."""
    for name in fields:
        kind, _, text = name.partition(":")
        if kind == "k" and isinstance(entry, dict) and json.loads(text).items() <= entry.items():
            return name
        if kind == "v" and json.loads(text) == entry:
            return name
    return None


def _can_run(template: Object) -> bool:
    """Tell whether every container still has an image: somebody who edits one takes the field over."""
    pod = template.get("spec", {})
    containers = [*pod.get("initContainers", ()), *pod.get("containers", ())]
    return bool(pod.get("containers")) and all(container.get("image") for container in containers)
