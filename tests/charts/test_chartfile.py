"""What the chart says about itself is true, and its templates give the same on every machine."""

import re
import tomllib

import pytest
import yaml

from penstock.api.backend import LLMBackend
from penstock.api.crd import crd
from tests.charts.objects import CHART, REPOSITORY, of_kind

CHARTFILE = yaml.safe_load((CHART / "Chart.yaml").read_text())
ANNOTATIONS = {name.removeprefix("artifacthub.io/"): text for name, text in CHARTFILE["annotations"].items()}
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def semantic(version):
    """Return a Python version as SemVer spells it: 0.1.0.dev0 is 0.1.0-dev.0."""
    return re.sub(r"[.]?(a|b|rc|dev)(\d+)$", r"-\1.\2", version)


@pytest.mark.parametrize(
    ("python", "expected"), [("0.1.0.dev0", "0.1.0-dev.0"), ("1.0.0rc1", "1.0.0-rc.1"), ("1.2.3", "1.2.3")]
)
def test_versions_are_translated(python, expected):
    assert semantic(python) == expected


def test_the_chart_has_the_version_of_the_release():
    assert CHARTFILE["appVersion"] == PROJECT["version"]
    assert CHARTFILE["version"] == semantic(PROJECT["version"])
    assert ANNOTATIONS["prerelease"] == str("-" in CHARTFILE["version"]).lower()


def test_the_licence_is_the_project_s():
    assert ANNOTATIONS["license"] == PROJECT["license"]


def test_the_listed_image_is_the_installed_one(installed):
    (deployment,) = of_kind(installed, "Deployment")
    images = [container["image"] for container in deployment["spec"]["template"]["spec"]["containers"]]
    assert [entry["image"] for entry in yaml.safe_load(ANNOTATIONS["images"])] == images


def test_the_listed_crd_is_the_generated_one():
    (entry,) = yaml.safe_load(ANNOTATIONS["crds"])
    definition = crd()
    assert entry["name"] == definition["metadata"]["name"]
    assert entry["kind"] == definition["spec"]["names"]["kind"]
    (version,) = definition["spec"]["versions"]
    assert entry["version"] == version["name"]
    assert entry["description"] == version["schema"]["openAPIV3Schema"]["description"]


def test_the_example_is_a_backend_that_is_accepted():
    (example,) = yaml.safe_load(ANNOTATIONS["crdsExamples"])
    example["metadata"] |= {"namespace": "default", "uid": "1", "generation": 1}
    assert LLMBackend.parse(example).spec.model.name == "smollm2-135m"


def test_the_notes_show_the_same_example():
    notes = (CHART / "templates" / "NOTES.txt").read_text()
    (block,) = re.findall(r"<<'END'\n(.*?)\n  END\n", notes, re.DOTALL)
    assert [yaml.safe_load(block)] == yaml.safe_load(ANNOTATIONS["crdsExamples"])


@pytest.mark.parametrize("function", ["lookup", "rand", "uuidv4", "now", "genCA", "genPrivateKey", "derivePassword"])
def test_no_template_looks_at_the_cluster_or_throws_dice(function):
    """GitOps tools render without a cluster, again and again, and expect the same."""
    for path in (CHART / "templates").rglob("*.*"):
        actions = re.findall(r"\{\{(?!-? ?/\*)(.*?)\}\}", path.read_text(), re.DOTALL)
        assert not [action for action in actions if re.search(rf"\b{function}", action)], path
