"""What every field of the spec does, as data: an example, where its effect is seen, and whether a change rolls pods.

`python -m tests.resources.fields` (with `operator:.` as PYTHONPATH) prints the table.
"""

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Spec = dict[str, Any]

LLAMA_CPP: Spec = {"type": "LlamaCpp", "image": "llama.cpp:server-b11434"}
VLLM: Spec = {"type": "VLLM", "image": "vllm/vllm-openai:v0.18.0"}
BAKED: Spec = {"name": "m", "source": {"baked": {"path": "/m.gguf"}}}
BASE: Spec = {"engine": LLAMA_CPP, "model": BAKED}

SAME = object()
"""Expected where the effect is the value itself."""

REMOVED = object()
"""Without the field nothing stands in its place."""

NOWHERE = "no child"
"""The effect is outside of the children: all of them stay as they are."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field.

    Attributes:
        path: Its path below `spec`; `[]` is an entry of a list, `{}` the whole of a map.
        value: An example.
        where: Where its effect is seen, as `effects` reads it, or `NOWHERE`.
        expected: What is seen there; by default the value itself.
        rolls: Whether a change of it replaces pods.
        within: The rest of the spec, by top-level field.
        instead: What stands in its place without it, where it cannot be left out.
        goes_with: Path of what is left out to be without it, where it is required and has one value only.
        shown_by: A test that shows the effect outside of the children, as `path::name`.
    """

    path: str
    value: Any
    where: str
    rolls: bool
    expected: Any = SAME
    within: Spec = field(default_factory=dict)
    instead: Any = REMOVED
    goes_with: str = ""
    shown_by: str = ""

    @property
    def seen(self) -> Any:
        """Return what is seen where the effect is."""
        return self.value if self.expected is SAME else self.expected

    def with_it(self) -> Spec:
        """Return a spec with the field."""
        return put({**BASE, **self.within}, self.path, self.value)

    def without_it(self) -> Spec:
        """Return the same spec without the field, or with another value where it cannot be left out."""
        spec = {**BASE, **self.within}
        return (
            remove(spec, self.goes_with or self.path) if self.instead is REMOVED else put(spec, self.path, self.instead)
        )


def group(prefix: str, where: str, values: Mapping[str, Any], *, rolls: bool, **common: Any) -> Iterator[Field]:
    """Yield the fields of one block whose effects have the same names in one place.

    Args:
        prefix: Path of the block, with a dot or `[].` at the end.
        where: Place of the block's effects, likewise.
        values: Examples by name.
        rolls: As for `Field`.
        common: Further attributes of all of them.
    """
    for name, value in values.items():
        target = re.sub(r"\[\](?!$)", "[0]", name).removesuffix("{}")
        # The value of a list's only entry is seen as that entry.
        target = re.sub(r"\[\]$", "[0]", target)
        yield Field(path=prefix + name, value=value, where=where + target, rolls=rolls, **common)


def put(spec: Spec, path: str, value: Any) -> Spec:
    """Return a copy of a spec with a value at a path; missing blocks are made on the way."""
    spec = copy.deepcopy(spec)
    *above, last = _steps(path)
    place: Any = spec
    for name, is_list in above:
        place = place.setdefault(name, [{}])[0] if is_list else place.setdefault(name, {})
    name, is_list = last
    place[name] = [value] if is_list else copy.deepcopy(value)
    return spec


def remove(spec: Spec, path: str) -> Spec:
    """Return a copy of a spec without what stands at a path."""
    spec = copy.deepcopy(spec)
    *above, (name, _) = _steps(path)
    place: Any = spec
    for step, is_list in above:
        place = place.get(step, {})
        if is_list:
            place = place[0] if place else {}
    place.pop(name, None)
    return spec


def _steps(path: str) -> list[tuple[str, bool]]:
    return [(step.removesuffix("[]").removesuffix("{}"), step.endswith("[]")) for step in path.split(".")]


def table() -> str:
    """Return all fields as a Markdown table."""
    from tests.resources.fieldtable import FIELDS

    lines = ["| field | example | effect | seen | change rolls pods |", "|---|---|---|---|---|"]
    lines += [
        f"| `{one.path}` | `{one.value}` | {one.where} | "
        f"{one.shown_by if one.where == NOWHERE else f'`{one.seen}`'} | {'yes' if one.rolls else 'no'} |"
        for one in FIELDS
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
