"""Model and generated schema judge the same objects alike, and the schema is one the API server takes."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError

from penstock.api.backend import LLMBackend
from penstock.api.schema import KEPT, UnsupportedSchemaError, structural
from tests.api.examples import (
    CRD_SCHEMA,
    backend,
    defaulted,
    for_jsonschema,
    nodes,
    schema_accepts,
    vllm,
    without_empty,
)

Schema = dict[str, Any]
NODES = nodes(CRD_SCHEMA)
KINDS_OF_AFFINITY = CRD_SCHEMA["properties"]["spec"]["properties"]["pod"]["properties"]["affinity"]["properties"]
TEXT = st.text(alphabet=string.ascii_letters + string.digits + "._-/:,= \n", max_size=12)


def values(node: Schema) -> st.SearchStrategy[Any]:
    """Return values that a schema mostly accepts, with some that are just out of bounds or of another type."""
    return _mostly(_kin(node), st.one_of(st.booleans(), st.integers(), st.just([]), st.just({}), TEXT), one_in=60)


def _mostly(good: st.SearchStrategy[Any], bad: st.SearchStrategy[Any], *, one_in: int) -> st.SearchStrategy[Any]:
    return st.integers(1, one_in).flatmap(lambda die: bad if die == one_in else good)


def _kin(node: Schema) -> st.SearchStrategy[Any]:
    if node.get("x-kubernetes-int-or-string"):
        good = st.one_of(st.integers(0, 9), st.sampled_from(["1", "500m", "2Gi", "1e3"]))
        return _mostly(good, st.sampled_from([-1, "x", "-1", "1Gi\n"]), one_in=12)
    if "enum" in node:
        return _mostly(st.sampled_from(node["enum"]), TEXT, one_in=12)
    kinds = {"string": _strings, "integer": _integers, "array": _arrays, "object": _objects}
    return kinds[node["type"]](node) if node["type"] in kinds else st.booleans()


def _strings(node: Schema) -> st.SearchStrategy[str]:
    pattern = for_jsonschema(node).get("pattern")
    if pattern is None:
        return TEXT
    good = st.from_regex(pattern, alphabet=st.characters(max_codepoint=127))
    return _mostly(good, st.one_of(good.map(lambda text: text + "\n"), TEXT), one_in=12)


def _integers(node: Schema) -> st.SearchStrategy[int]:
    low, high = node.get("minimum", 0), node.get("maximum", 10**6)
    return _mostly(st.integers(low, high), st.sampled_from([low - 1, low, high, high + 1]), one_in=12)


def _arrays(node: Schema) -> st.SearchStrategy[list[Any]]:
    return st.lists(values(node["items"]), max_size=3)


def _objects(node: Schema) -> st.SearchStrategy[dict[str, Any]]:
    if "additionalProperties" in node:
        good = st.sampled_from(["cpu", "memory", "nvidia.com/gpu"])
        own = ["serving.penstock.dev/backend", "app.kubernetes.io/name"]
        bad = st.sampled_from(["", "a b", *own, "a/b/c", "a..b/c", "x\n", "x" * 64, "x" * 252 + "/y"])
        names = _mostly(good, bad, one_in=12) if node.get("x-kubernetes-validations") else good
        return st.dictionaries(names, values(node["additionalProperties"]))
    fields = {name: values(field) for name, field in node.get("properties", {}).items()}
    required = {name: strategy for name, strategy in fields.items() if name in node.get("required", ())}
    optional = {name: strategy for name, strategy in fields.items() if name not in required}
    return st.fixed_dictionaries(required, optional=optional | {"unknown": st.just(1)})


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """Return backends of which one part is drawn, so that a fair share of them is valid."""
    parts = CRD_SCHEMA["properties"]["spec"]["properties"]
    name = draw(st.sampled_from(sorted(parts)))
    return backend(**{name: draw(values(parts[name]))})


def errors(body: dict[str, Any]) -> list[str]:
    """Return the kinds of errors the model finds; `rule` for a condition over several fields."""
    try:
        LLMBackend.model_validate_json(json.dumps(body), strict=True)
    except ValidationError as error:
        return [entry["type"] for entry in error.errors()]
    return []


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(bodies())
def test_model_and_schema_judge_alike_and_fill_in_the_same_defaults(body: dict[str, Any]) -> None:
    """Conditions over several fields are left to a real API server."""
    found = errors(body)
    if not schema_accepts(body):
        event("refused")
        assert found, "the schema refuses what the model accepts"
        return
    assert set(found) <= {"rule"}, "the model refuses what the schema accepts"
    if not found:
        event("accepted")
        expected = defaulted(CRD_SCHEMA["properties"]["spec"], body["spec"])
        assert without_empty(LLMBackend.parse(body).spec.to_dict()) == without_empty(expected)


@pytest.mark.parametrize(
    "body",
    [backend(), vllm(), vllm(engine={"vllm": {}}), backend(engine={"type": "LlamaCpp", "llamaCpp": {}}, drain={})],
    ids=["llama.cpp", "vLLM", "an empty vllm block", "empty blocks"],
)
def test_small_objects_get_the_same_defaults(body: dict[str, Any]) -> None:
    expected = defaulted(CRD_SCHEMA["properties"]["spec"], body["spec"])
    assert without_empty(LLMBackend.parse(body).spec.to_dict()) == without_empty(expected)


def test_every_part_of_the_schema_is_structural() -> None:
    """The API server refuses references, null types, unions outside quantities, and parts without a type."""
    for path, node in NODES:
        assert set(node) <= set(KEPT), path
        assert ("type" in node) != ("x-kubernetes-int-or-string" in node), path
        assert "anyOf" not in node or node["anyOf"] == [{"type": "integer"}, {"type": "string"}], path
        assert node.get("default", 0) is not None, path
        assert set(node.get("required", ())) <= node.get("properties", {}).keys(), path


def test_nothing_is_kept_that_is_not_described_by_type() -> None:
    """Whatever the API server keeps unread may be nested until no reader of JSON survives it."""
    for path, node in NODES:
        assert "x-kubernetes-preserve-unknown-fields" not in node, path
        assert node.get("type") != "object" or {"properties", "additionalProperties"} & set(node), path
        assert isinstance(node.get("additionalProperties", {}), dict), path


def test_every_list_and_map_is_bounded() -> None:
    """Without a bound, the estimated cost of a rule about it is over the API server's budget."""
    for path, node in NODES:
        if node.get("type") == "array":
            assert "maxItems" in node, path
        if "additionalProperties" in node:
            assert "maxProperties" in node, path


def test_every_field_is_described() -> None:
    """The descriptions are what `kubectl explain` prints; it explains Kubernetes' own types under `pod`."""
    elsewhere = (".apiVersion", ".kind", ".metadata", *(f".spec.pod.affinity.{kind}." for kind in KINDS_OF_AFFINITY))
    own = [path for path, _ in NODES if not path.startswith(elsewhere)]
    described = {path for path, node in NODES if node.get("description", "").endswith((".", ")"))}
    assert [path for path in own if path not in described and not path.endswith(("[]", "{}"))] == []


class _Leaf(BaseModel):
    number: int = 3


class _Tree(BaseModel):
    leaf: _Leaf = _Leaf()
    other: _Leaf = _Leaf(number=4)
    required: _Leaf


def test_an_object_of_defaults_gets_the_default_that_lets_them_apply() -> None:
    """The API server fills in nested defaults only where the parent exists."""
    fields = structural(_Tree)["properties"]
    assert fields["leaf"]["default"] == {}
    assert fields["other"]["default"] == {"number": 4}
    assert "default" not in fields["required"]


class _Union(BaseModel):
    field: int | list[int] = 1


class _Loop(BaseModel):
    inner: _Loop | None = None


class _Anything(BaseModel):
    field: dict[str, Any] = {}


class _Float(BaseModel):
    field: int = Field(default=2, gt=1)


@pytest.mark.parametrize(
    ("model", "words"),
    [(_Union, "a union"), (_Loop, "refers to itself"), (_Float, "exclusiveMinimum"), (_Anything, "of any type")],
    ids=["a union", "a model in itself", "an unknown keyword", "an object of anything"],
)
def test_what_has_no_counterpart_is_an_error_not_a_wrong_schema(model: type[BaseModel], words: str) -> None:
    with pytest.raises(UnsupportedSchemaError, match=words):
        structural(model)
