"""Finds what a field does in the children: a place and a path, written as `place: path`.

Places are kinds of children (`Service`, `Deployment`, ...), parts of the pod (`labels`, `annotations`, `pod`, `engine`,
`limiter`, `download`), arguments and variables (`engine argument`, `engine variable`, `limiter variable`,
`download variable`) and the limiter's policy file (`policy`). A path has dots; `[0]` and `[-1]` are places in a list,
`[name=x]` is the entry with that name. A kind without a path is `made` or `absent`.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from penstock.resources.objects import Object

ABSENT = "absent"
MADE = "made"

_STEP = re.compile(r"([^.\[\]]+)|\[(-?\d+)\]|\[(\w+)=([^\]]+)\]")


def effect(children: Sequence[Object], where: str) -> Any:
    """Return what stands at a place in the children, or `absent`."""
    place, _, path = where.partition(": ")
    if place == "policy":
        (policy,) = (child for child in children if child["kind"] == "ConfigMap")
        return look(json.loads(policy["data"]["policy.json"]), path)
    if place[0].isupper():
        # The Service of the backend comes before the headless one.
        child = next((child for child in children if child["kind"] == place), None)
        if child is None:
            return ABSENT
        return look(child, path) if path else MADE
    return _in_template(children[-1]["spec"]["template"], place, path)


def look(value: Any, path: str) -> Any:
    """Return what stands at a path below a value, or `absent`."""
    for name, index, key, wanted in _STEP.findall(path):
        if name:
            if not isinstance(value, dict) or name not in value:
                return ABSENT
            value = value[name]
            continue
        entries = value if isinstance(value, list) else []
        if index and len(entries) > int(index):
            value = entries[int(index)] if entries else ABSENT
        else:
            value = next((entry for entry in entries if key and entry.get(key) == wanted), ABSENT)
        if value == ABSENT:
            return ABSENT
    return value


def _in_template(template: Object, place: str, path: str) -> Any:
    pod = template["spec"]
    if place == "pod":
        return look(pod, path)
    if place in {"labels", "annotations"}:
        return template["metadata"][place].get(path, ABSENT)
    name, _, part = place.partition(" ")
    containers = [entry for entry in pod["containers"] + pod["initContainers"] if entry["name"] == name]
    if not containers:
        return ABSENT
    (container,) = containers
    if part == "argument":
        args = container["args"]
        return args[args.index(path) + 1] if path in args[:-1] else (MADE if path in args else ABSENT)
    if part == "variable":
        return look(container["env"], f"[name={path}].value")
    return look(container, path)
