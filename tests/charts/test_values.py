"""values.yaml: every setting of the operator, every value with its words, and a schema that refuses what is wrong."""

import json
import re

import jsonschema
import pytest
import yaml

from penstock.runtime.settings import OperatorSettings
from scripts import chartvalues
from tests.charts.objects import CHART

TEXT = (CHART / "values.yaml").read_text()
VALUES = yaml.safe_load(TEXT)
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


@pytest.mark.parametrize("name", OperatorSettings.model_fields)
def test_every_setting_has_a_value_with_its_own_default(name):
    if name in chartvalues.SET_BY_CHART:
        assert chartvalues.camel_case(name) not in VALUES["settings"]
    else:
        assert VALUES["settings"][chartvalues.camel_case(name)] == chartvalues.default_of(name)


def test_there_is_no_value_for_a_setting_that_is_gone():
    names = {chartvalues.camel_case(name) for name in OperatorSettings.model_fields}
    assert set(VALUES["settings"]) <= names
    assert set(chartvalues.SET_BY_CHART) <= set(OperatorSettings.model_fields)


def test_settings_are_followed(monkeypatch):
    """A setting that is added to the operator appears with its text, its default and its bounds."""

    class Changed(OperatorSettings):
        """Settings of tomorrow."""

        gates_per_lock: int = 3
        """How many gates a lock has. Two are usual."""

    monkeypatch.setattr(chartvalues, "OperatorSettings", Changed)
    text = chartvalues.with_settings(TEXT)
    assert "  # How many gates a lock has. Two are usual.\n  gatesPerLock: 3\n" in text
    assert chartvalues.schema(text)["properties"]["settings"]["properties"]["gatesPerLock"] == {
        "description": "How many gates a lock has. Two are usual.",
        "type": "integer",
    }
    assert chartvalues.with_settings(text) == text


def test_a_value_without_words_is_an_error():
    with pytest.raises(ValueError, match=r"write a comment above crds\.install"):
        chartvalues.schema(re.sub(r"  # Install and upgrade.*\n", "", TEXT))


def test_a_constraint_on_nothing_is_an_error():
    with pytest.raises(ValueError, match="a constraint: extraEnv"):
        chartvalues.schema(TEXT.replace("extraEnv", "moreEnv"))


def test_the_table_has_a_row_for_every_value():
    rows = re.findall(r"^\| `([\w.]+)` \| `(.*?)` \| (.+) \|$", chartvalues.table(TEXT), re.MULTILINE)
    assert ("replicas", "2") in [row[:2] for row in rows]
    assert ("resources.limits", '{"memory": "384Mi"}') in [row[:2] for row in rows]
    names = {row[0] for row in rows}
    assert {name for name in names if name.startswith("settings.")} == {
        f"settings.{name}" for name in VALUES["settings"]
    }
    assert {name.split(".")[0] for name in names} == set(VALUES)


def objects(schema, path=()):
    """Yield the parts of a schema that are objects, with their paths."""
    if schema.get("type") == "object":
        yield path, schema
        for name, part in schema.get("properties", {}).items():
            yield from objects(part, (*path, name))


def test_every_value_is_described_and_no_other_is_allowed():
    for path, part in objects(SCHEMA):
        if "properties" in part:
            assert part["additionalProperties"] is False, path
            assert all(entry["description"] for entry in part["properties"].values()), path


def test_the_defaults_are_accepted():
    jsonschema.validate(VALUES, SCHEMA)


def changed(path, value):
    values = json.loads(json.dumps(VALUES))
    *parents, last = path.split(".")
    part = values
    for name in parents:
        part = part[name]
    part[last] = value
    return values


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("image.tag", "v1.0"),
        ("image.digest", "sha256:" + "0" * 64),
        ("image.repository", "registry.example:5000/team/penstock"),
        ("image.repository", "localhost/penstock"),
        ("replicas", 1),
        ("watchNamespaces", ["a", "team-b"]),
        ("extraEnv", [{"name": "HTTPS_PROXY", "valueFrom": {"secretKeyRef": {"name": "p", "key": "k"}}}]),
        ("extraVolumes", [{"name": "prometheus", "secret": {"secretName": "prometheus"}}]),
        ("podDisruptionBudget.maxUnavailable", "50%"),
        ("metrics.podMonitor.interval", "1m30s"),
        ("resources.limits", {"memory": "1Gi", "example.com/thing": "1"}),
        ("global", {"anything": 1}),
        ("enabled", True),
    ],
)
def test_accepted(path, value):
    jsonschema.validate(changed(path, value), SCHEMA)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("imgae", {}),
        ("image.tags", "v1"),
        ("image.tag", 1.0),
        ("image.tag", "a b"),
        ("image.digest", "sha256:0123"),
        ("image.repository", "Penstock"),
        ("image.repository", ""),
        ("image.pullPolicy", "Sometimes"),
        ("imagePullSecrets", ["name"]),
        ("imagePullSecrets", [{"name": "a", "namespace": "b"}]),
        ("replicas", "2"),
        ("replicas", -1),
        ("watchNamespaces", "team-a"),
        ("watchNamespaces", ["Team_A"]),
        ("crds.install", "yes"),
        ("settings.workers", 0),
        ("settings.workers", "4"),
        ("settings.logLevel", "loud"),
        ("settings.healthPort", 0),
        ("settings.unknown", 1),
        ("extraEnv", {"A": "b"}),
        ("extraEnv", [{"value": "b"}]),
        ("extraVolumes", [{"secret": {"secretName": "a"}}]),
        ("extraVolumeMounts", ["/etc/prometheus"]),
        ("podAnnotations", {"a": True}),
        ("resources.request", {}),
        ("podDisruptionBudget.maxUnavailable", "half"),
        ("metrics.podMonitor.interval", "often"),
        ("terminationGracePeriodSeconds", 0),
    ],
)
def test_refused(path, value):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed(path, value), SCHEMA)
