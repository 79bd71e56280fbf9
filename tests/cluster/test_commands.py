"""Commands in a node's network, with a driver that enters no network."""

import os
import subprocess
from pathlib import Path

import pytest

from e2e.cluster import cleanup
from e2e.cluster.commands import Commands
from e2e.cluster.folders import Folders


class Here(Commands):
    """Runs everything where it is, and tells for which node."""

    kubectl_path = Path("/tools/kubectl")

    def enter(self, argv, *, node):
        return ["env", f"NODE={node}", *argv]


@pytest.fixture
def cluster(tmp_path):
    return Here("x", Folders(tmp_path, "group"))


def variable(cluster, name, **options):
    return cluster.run(["sh", "-c", f'echo "${name}"'], **options).stdout.strip()


def test_a_command_has_the_clusters_kubeconfig_whatever_was_set_before(cluster, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/other")
    assert variable(cluster, "KUBECONFIG") == str(cluster.folders.root / "kubeconfig")


def test_a_command_finds_kubectl_after_what_the_path_had(cluster):
    assert variable(cluster, "PATH") == f"{os.environ['PATH']}:/tools"


def test_a_command_is_marked_as_the_clusters(cluster):
    assert variable(cluster, cleanup.MARK) == str(cluster.folders.root)


@pytest.mark.parametrize("name", ["http_proxy", "HTTPS_PROXY", "all_proxy"])
def test_a_proxy_that_cannot_be_reached_from_inside_is_not_passed_on(cluster, monkeypatch, name):
    monkeypatch.setenv(name, "http://proxy:3128")
    assert variable(cluster, name) == ""


@pytest.mark.parametrize("node", [None, "node-2"])
def test_a_command_runs_in_the_node_that_was_asked_for(cluster, node):
    assert variable(cluster, "NODE", node=node) == str(node)


def test_input_reaches_the_command_and_without_any_it_sees_an_end(cluster):
    assert cluster.run(["cat"], input="given").stdout == "given"
    assert cluster.run(["cat"]).stdout == ""


def test_a_failure_is_an_error_unless_it_was_asked_for(cluster):
    with pytest.raises(subprocess.CalledProcessError):
        cluster.run(["false"])
    assert cluster.run(["false"], check=False).returncode == 1


def test_popen_keeps_what_it_is_given_and_adds_the_rest(cluster, tmp_path):
    command = ["sh", "-c", 'echo "$GIVEN $KUBECONFIG"; pwd']
    environment = {**os.environ, "GIVEN": "yes"}
    with cluster.popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        lines = process.stdout.read().splitlines()
    assert lines == [f"yes {cluster.kubeconfig}", str(tmp_path)]
