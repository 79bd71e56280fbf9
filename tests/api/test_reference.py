"""The reference page says everything the schema holds."""

from __future__ import annotations

import pytest

from penstock.api.conditions import ConditionType, Reason
from penstock.api.reference import page
from tests.api.examples import CRD_SCHEMA, nodes

PAGE = page()
KUBERNETES_OWN = ".spec.pod.affinity."


def test_every_field_stands_in_a_table() -> None:
    for path, node in nodes(CRD_SCHEMA):
        if "properties" in node and path.startswith((".spec", ".status")) and not path.startswith(KUBERNETES_OWN):
            section = PAGE.partition(f"## `{path.removeprefix('.')}`\n")[2].partition("\n## ")[0]
            assert section, path
            assert [name for name in node["properties"] if f"| `{name}` |" not in section] == []


def test_every_rule_is_told() -> None:
    rules = [rule["message"] for _, node in nodes(CRD_SCHEMA) for rule in node.get("x-kubernetes-validations", ())]
    assert [message for message in rules if message not in PAGE] == []


def test_defaults_and_ranges_are_told() -> None:
    assert "| `lameDuckSeconds` | integer, 0 to 600 | `10` |" in PAGE
    assert "| `type` | `VLLM`, `LlamaCpp` | required |" in PAGE
    assert "| `enforceEager` | boolean | `false` |" in PAGE
    assert "| `limits` | map of quantity |" in PAGE


@pytest.mark.parametrize("word", [*ConditionType, *Reason])
def test_every_condition_and_reason_is_told_with_its_meaning(word: str) -> None:
    (line,) = (line for line in PAGE.splitlines() if line.startswith(f"| `{word}` | "))
    assert line.endswith(". |")
