"""deploy/install.yaml: complete, safe, and found out when it is not what the chart gives."""

import re
import runpy
import shutil
import subprocess
import sys

import pytest
import yaml

from e2e import helm
from penstock.api.crd import crd
from scripts import manifest
from tests.charts.objects import REPOSITORY, container_of, of_kind

SCRIPT = REPOSITORY / "scripts" / "generate.py"
TEXT = (REPOSITORY / "deploy" / "install.yaml").read_text()


def run(*arguments):
    """Run the script as a user does."""
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def dump():
    return runpy.run_path(str(SCRIPT))["dump"]


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """The sources of the manifest in a folder of their own, on a machine without helm."""
    monkeypatch.setattr(helm, "present", lambda: False)
    shutil.copytree(REPOSITORY / manifest.CHART, tmp_path / manifest.CHART)
    (tmp_path / "deploy").mkdir()
    shutil.copy(REPOSITORY / manifest.NAMESPACE_FILE, tmp_path / manifest.NAMESPACE_FILE)
    return tmp_path


def test_generated_files_are_fresh():
    result = run("--check")
    assert result.returncode == 0, result.stderr


def test_a_stale_file_is_named_with_what_to_run(tmp_path, capsys):
    module = runpy.run_path(str(SCRIPT))
    main = module["main"]
    main.__globals__["REPOSITORY"] = tmp_path
    main.__globals__["outputs"] = lambda: {"crds/llmbackends.yaml": "new\n"}
    main.__globals__["manifest"] = type("Fresh", (), {"is_stale": staticmethod(lambda *_: False)})
    assert main(["--check"]) == 1
    assert "crds/llmbackends.yaml is stale: run `python scripts/generate.py`" in capsys.readouterr().err
    assert main([]) == 0
    assert (tmp_path / "crds" / "llmbackends.yaml").read_text() == "new\n"


def test_without_helm_the_digest_judges(copy, dump):
    assert not manifest.is_stale(copy, TEXT, dump)


@pytest.mark.parametrize(
    "name", ["charts/penstock/values.yaml", "charts/penstock/templates/deployment.yaml", "deploy/namespace.yaml"]
)
def test_a_source_that_changed_since_is_found_out(copy, dump, name):
    (copy / name).write_text((copy / name).read_text() + "# changed\n")
    assert manifest.is_stale(copy, TEXT, dump)


@pytest.mark.parametrize(
    "edited",
    [TEXT.replace("replicas: 2", "replicas: 3"), TEXT + "---\n", TEXT.split("\n", 2)[2], ""],
    ids=["a value", "an end", "without header", "empty"],
)
def test_an_edit_by_hand_is_found_out(copy, dump, edited):
    assert manifest.is_stale(copy, edited, dump)


def test_applied_from_top_to_bottom_everything_finds_what_it_needs(installed):
    assert installed[0] == crd()
    assert installed[1]["kind"] == "Namespace"
    assert len(installed) == len({(obj["kind"], obj["metadata"]["name"]) for obj in installed})


def test_nothing_in_it_says_that_helm_installed_it():
    assert "helm.sh/" not in TEXT
    assert "managed-by: Helm" not in TEXT


def test_another_image_is_used_for_operator_and_limiter():
    result = run("--image", "localhost/penstock:0123456789ab")
    container = container_of(list(yaml.safe_load_all(result.stdout)))
    assert container["image"] == "localhost/penstock:0123456789ab"
    assert {"name": "PENSTOCK_IMAGE", "value": "localhost/penstock:0123456789ab"} in container["env"]
    assert "ghcr.io" not in re.sub(r"description:.*", "", result.stdout)


@pytest.mark.parametrize(
    "image",
    [
        "penstock",
        "registry.example:5000/team/penstock:1.0",
        "ghcr.io/a/b@sha256:" + "0" * 64,
        "a/b:c@sha256:" + "1" * 64,
    ],
)
def test_an_image_may_be_named_as_registries_allow(image):
    assert f"image: {image}\n" in manifest.with_image(TEXT, "ghcr.io/penstock-dev/penstock:0.1.0.dev0", image)


@pytest.mark.parametrize(
    "image", ["", "Penstock:1", "a b", "penstock:1\n  privileged: true", "penstock: 1", "a@sha256:12", "'a'", "a:b:c"]
)
def test_no_other_text_is_taken_for_an_image(image):
    with pytest.raises(ValueError, match="is no image reference; write it as"):
        manifest.with_image(TEXT, "ghcr.io/penstock-dev/penstock:0.1.0.dev0", image)


def test_a_wrong_image_is_one_sentence():
    result = run("--image", "a b")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "generate: `a b` is no image reference; write it as registry.example/penstock:1.0\n"


def test_the_operator_meets_the_restricted_pod_security_level(installed):
    (namespace,) = of_kind(installed, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    (deployment,) = of_kind(installed, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container_of(installed)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def test_probes_use_numbers_not_names(installed):
    container = container_of(installed)
    ports = [container[probe]["httpGet"]["port"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert ports == [8080, 8080, 8080]
