"""The CustomResourceDefinition as a whole."""

from __future__ import annotations

import json

from penstock.api.crd import PRINTER_COLUMNS, crd
from tests.api.examples import CRD_SCHEMA, nodes

MAXIMUM_BYTES = 100_000


def test_it_stays_small() -> None:
    """A client-side apply keeps the whole object in an annotation of at most 256 KiB."""
    assert len(json.dumps(crd())) < MAXIMUM_BYTES


def test_names_and_subresources() -> None:
    spec = crd()["spec"]
    (version,) = spec["versions"]
    assert spec["names"]["shortNames"] == ["llmb"]
    assert spec["names"]["categories"] == ["penstock"]
    assert (version["name"], version["served"], version["storage"]) == ("v1alpha1", True, True)
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.replicas"
    assert version["subresources"]["status"] == {}


def test_every_column_and_scale_path_points_at_a_field() -> None:
    known = {path for path, _ in nodes(CRD_SCHEMA)} | {".metadata.creationTimestamp"}
    scale = crd()["spec"]["versions"][0]["subresources"]["scale"]
    paths = [str(column["jsonPath"]) for column in PRINTER_COLUMNS] + list(scale.values())
    plain = [path.replace('[?(@.type=="Ready")]', "[]") for path in paths]
    assert set(plain) <= known


def test_conditions_are_a_map_by_type() -> None:
    conditions = CRD_SCHEMA["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


def test_every_rule_has_a_message() -> None:
    rules = [rule for _, node in nodes(CRD_SCHEMA) for rule in node.get("x-kubernetes-validations", ())]
    assert len(rules) > 20
    assert all(rule["message"] and len(rule["message"]) <= 2048 for rule in rules)
