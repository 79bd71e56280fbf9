"""What stands in examples/ can be applied as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.api.backend import LLMBackend
from penstock.engines.engine import for_type
from tests.api.examples import CRD_SCHEMA, schema_accepts

FILES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.yaml"))
OBJECTS = [pytest.param(obj, id=path.stem) for path in FILES for obj in yaml.safe_load_all(path.read_text())]
BACKENDS = [entry for entry in OBJECTS if entry.values[0]["kind"] == "LLMBackend"]


def unknown(node: dict[str, Any], value: Any, path: str = "") -> list[str]:
    """Return the paths of fields that the schema does not know."""
    if isinstance(value, list):
        return [found for entry in value for found in unknown(node["items"], entry, path + "[]")]
    if not isinstance(value, dict) or "properties" not in node:
        return []
    known = node["properties"]
    strangers = [f"{path}.{name}" for name in value if name not in known]
    return strangers + [
        found
        for name, entry in value.items()
        if name in known
        for found in unknown(known[name], entry, f"{path}.{name}")
    ]


def test_there_is_one_for_each_way_to_start() -> None:
    assert {path.stem for path in FILES} >= {"smallest", "vllm", "tenants", "autoscaled"}


@pytest.mark.parametrize("body", BACKENDS)
def test_it_is_valid_and_no_field_is_misspelled(body: dict[str, Any]) -> None:
    assert schema_accepts(body)
    assert unknown(CRD_SCHEMA["properties"]["spec"], body["spec"]) == []
    spec = LLMBackend.parse(body).spec
    assert for_type(spec.engine.type).check(spec) == []


def test_the_autoscaler_scales_the_backend_beside_it() -> None:
    (path,) = (path for path in FILES if path.stem == "autoscaled")
    backend, scaler = yaml.safe_load_all(path.read_text())
    target = {"apiVersion": backend["apiVersion"], "kind": backend["kind"], "name": backend["metadata"]["name"]}
    assert scaler["spec"]["scaleTargetRef"] == target
    assert "replicas" not in backend["spec"]
