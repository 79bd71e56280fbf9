"""Valid objects: no rule stands in their way, their defaults are those of the schema, and they use every field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.api.backend import LLMBackend
from penstock.engines.engine import for_type
from tests.api.complete import VALID
from tests.api.examples import CRD_SCHEMA, defaulted, nodes, schema_accepts, without_empty

SPEC = CRD_SCHEMA["properties"]["spec"]


@pytest.mark.parametrize("body", VALID.values(), ids=list(VALID))
def test_model_schema_and_checks_accept_it(body: dict[str, Any]) -> None:
    assert schema_accepts(body)
    spec = LLMBackend.parse(body).spec
    assert for_type(spec.engine.type).check(spec) == []


@pytest.mark.parametrize("body", VALID.values(), ids=list(VALID))
def test_the_model_fills_in_what_the_schema_fills_in(body: dict[str, Any]) -> None:
    assert without_empty(LLMBackend.parse(body).spec.to_dict()) == without_empty(defaulted(SPEC, body["spec"]))


def test_together_they_use_every_field() -> None:
    used = {path for body in VALID.values() for path in paths(body["spec"])}
    fields = {path for path, node in nodes(SPEC) if path != "." and not path.endswith(("[]", "{}"))}
    assert fields - used == set()


def test_every_default_is_departed_from_somewhere() -> None:
    """A field whose value is ignored would otherwise look as if it were read."""
    values = [(path, value) for body in VALID.values() for path, value in leaves(body["spec"])]
    plain = {path: node["default"] for path, node in nodes(SPEC) if "default" in node and node["type"] != "object"}
    assert [
        path for path, default in plain.items() if all(value == default for found, value in values if found == path)
    ] == []


def paths(value: Any, path: str = "") -> Iterator[str]:
    """Yield the path of every field in a value."""
    if isinstance(value, dict):
        for name, entry in value.items():
            yield f"{path}.{name}"
            yield from paths(entry, f"{path}.{name}")
    elif isinstance(value, list):
        for entry in value:
            yield from paths(entry, path + "[]")


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of every plain value in a value."""
    if isinstance(value, dict):
        for name, entry in value.items():
            yield from leaves(entry, f"{path}.{name}")
    elif isinstance(value, list):
        for entry in value:
            yield from leaves(entry, path + "[]")
    else:
        yield path, value
