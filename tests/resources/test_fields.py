"""Each field of the spec has its effect, and no field is without one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.api.crd import schema
from penstock.api.schema import Schema
from penstock.rollout.podspec import pod_spec_hash
from tests.resources.effects import effect
from tests.resources.fields import NOWHERE, table
from tests.resources.fieldtable import FIELDS

ROOT = Path(__file__).parents[2]
BY_ID = [pytest.param(one, id=one.path) for one in FIELDS]


def leaves(node: Schema, path: str) -> Iterator[str]:
    """Yield the paths of all that holds no further fields."""
    if "properties" in node:
        for name, inner in node["properties"].items():
            yield from leaves(inner, f"{path}.{name}" if path else name)
    elif "items" in node:
        yield from leaves(node["items"], f"{path}[]")
    elif isinstance(node.get("additionalProperties"), dict):
        yield f"{path}{{}}"
    else:
        yield path


def test_every_field_of_the_crd_is_in_the_table_once():
    known = sorted(leaves(schema()["properties"]["spec"], ""))
    assert sorted(one.path for one in FIELDS) == known


@pytest.mark.parametrize("one", BY_ID)
def test_with_the_field_the_effect_is_there_and_without_it_it_is_not(make_backend, build, one):
    with_it, without_it = build(make_backend(**one.with_it())), build(make_backend(**one.without_it()))
    if one.where == NOWHERE:
        assert with_it == without_it
        return
    assert effect(with_it, one.where) == one.seen
    assert effect(without_it, one.where) != one.seen


@pytest.mark.parametrize("one", BY_ID)
def test_the_table_says_whether_a_change_rolls_pods(make_backend, template, one):
    with_it, without_it = make_backend(**one.with_it()), make_backend(**one.without_it())
    assert (template(with_it) != template(without_it)) is one.rolls
    assert (pod_spec_hash(with_it) != pod_spec_hash(without_it)) is one.rolls


@pytest.mark.parametrize("one", [param for param in BY_ID if param.values[0].where.startswith("policy")])
def test_a_policy_change_is_a_change_of_the_config_map_and_of_nothing_else(make_backend, build, one):
    with_it, without_it = build(make_backend(**one.with_it())), build(make_backend(**one.without_it()))
    changed = [new["kind"] for new, old in zip(with_it, without_it, strict=True) if new != old]
    assert changed == ["ConfigMap"]


def test_the_tests_that_show_an_effect_outside_of_the_children_exist():
    for one in FIELDS:
        path, _, name = one.shown_by.partition("::")
        assert not path or f"def {name}(" in (ROOT / path).read_text(), one.path


def test_the_table_has_a_line_for_each_field():
    assert len(table().splitlines()) == len(FIELDS) + 2
