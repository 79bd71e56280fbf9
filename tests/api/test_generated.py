"""Generated files are fresh, and the install manifest asks for no more than the operator needs."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.api.crd import crd

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "scripts" / "generate.py"
OBJECTS = list(yaml.safe_load_all((REPOSITORY / "deploy" / "install.yaml").read_text()))


def of_kind(kind: str) -> list[dict[str, Any]]:
    """Return the objects of a kind in the install manifest."""
    return [entry for entry in OBJECTS if entry["kind"] == kind]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script as a user does."""
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)


def test_generated_files_are_fresh() -> None:
    result = run("--check")
    assert result.returncode == 0, result.stderr


def test_a_stale_file_is_named_with_what_to_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = runpy.run_path(str(SCRIPT))
    main = module["main"]
    main.__globals__["REPOSITORY"] = tmp_path
    main.__globals__["outputs"] = lambda: {"crds/llmbackends.yaml": "new\n"}
    assert main(["--check"]) == 1
    assert "crds/llmbackends.yaml is stale: run `python scripts/generate.py`" in capsys.readouterr().err
    assert main([]) == 0
    assert (tmp_path / "crds" / "llmbackends.yaml").read_text() == "new\n"
    assert main(["--check"]) == 0


def test_another_image_is_used_for_operator_and_limiter() -> None:
    result = run("--image", "localhost/penstock:0123456789ab")
    (deployment,) = (entry for entry in yaml.safe_load_all(result.stdout) if entry["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "localhost/penstock:0123456789ab"
    assert {"name": "PENSTOCK_IMAGE", "value": "localhost/penstock:0123456789ab"} in container["env"]
    assert "ghcr.io" not in result.stdout


def test_the_manifest_begins_with_the_crd_and_the_namespace() -> None:
    """Applied from top to bottom, everything finds what it needs."""
    assert OBJECTS[0] == crd()
    assert OBJECTS[1]["kind"] == "Namespace"


def test_no_anchors_are_written() -> None:
    text = (REPOSITORY / "crds" / "llmbackends.yaml").read_text()
    assert "&id" not in text
    assert "*id" not in text


def test_cluster_rights_are_minimal_and_in_alphabetical_order() -> None:
    (role,) = (entry for entry in of_kind("ClusterRole") if entry["metadata"]["name"] == "penstock-operator")
    rules = [(rule["apiGroups"][0], rule["resources"][0], rule["resources"], rule["verbs"]) for rule in role["rules"]]
    assert rules == sorted(rules)
    for _, _, resources, verbs in rules:
        assert resources == sorted(resources)
        assert verbs == sorted(verbs)
        assert "*" not in resources + verbs
    assert "secrets" not in [name for rule in role["rules"] for name in rule["resources"]]


def test_secrets_are_readable_only_by_name_and_in_the_own_namespace() -> None:
    (role,) = of_kind("Role")
    assert role["metadata"]["namespace"] == "penstock-system"
    reading = [rule for rule in role["rules"] if set(rule["verbs"]) - {"create"}]
    assert [rule["resourceNames"] for rule in reading] == [["penstock-drain-key"]]


@pytest.mark.parametrize(("name", "target"), [("penstock-edit", "edit"), ("penstock-view", "view")])
def test_users_of_a_namespace_get_rights_on_its_backends(name: str, target: str) -> None:
    (role,) = (entry for entry in of_kind("ClusterRole") if entry["metadata"]["name"] == name)
    assert role["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{target}"] == "true"


def test_the_operator_meets_the_restricted_pod_security_level() -> None:
    (namespace,) = of_kind("Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    (deployment,) = of_kind("Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def test_probes_use_numbers_not_names() -> None:
    (deployment,) = of_kind("Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    ports = [container[probe]["httpGet"]["port"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert ports == [8080, 8080, 8080]
