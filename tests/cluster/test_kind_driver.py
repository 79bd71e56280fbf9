"""The kind driver where nothing has to run: errors that say what to do, and a start that fails."""

import pytest

from e2e.cluster import ClusterError, open_cluster
from e2e.cluster.kind import driver, state
from e2e.cluster.kind.bringup import BringUp
from e2e.cluster.kind.docker import Docker
from e2e.cluster.kind.driver import KindCluster
from e2e.cluster.kind.state import State
from e2e.cluster.node import Node


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    made = open_cluster("kind", name="x")
    made.folders.logs.mkdir(parents=True)
    return made


def known(cluster, **changes):
    one = State(kind="kind", anchor=None, nodes=(Node("x-1", "198.18.0.2"),)).but(**changes)
    return state.write(cluster.folders.root, one)


def test_the_driver_is_found_by_name(cluster):
    assert isinstance(cluster, KindCluster)


def test_it_shares_no_folder_and_no_control_group_with_another_cluster(cluster):
    local, other = open_cluster("local", name="x"), open_cluster("kind", name="y")
    assert len({local.logs.parent, cluster.logs.parent, other.logs.parent}) == 3
    assert cluster.folders.group != other.folders.group


def test_a_command_without_a_cluster_is_answered_with_how_to_start_it(cluster):
    with pytest.raises(ClusterError, match=r"python -m e2e\.cluster up --driver kind --name x"):
        cluster.run(["true"])


def test_an_unknown_node_is_answered_with_the_known_ones(cluster):
    known(cluster)
    with pytest.raises(ClusterError, match="has no node y-1; it has x-1"):
        cluster.run(["true"], node="y-1")


def test_a_cluster_that_never_came_up_is_not_up(cluster):
    known(cluster)
    status = cluster.status()
    assert (status["driver"], status["up"], status["parts"]) == ("kind", False, [])


def test_a_machine_without_disk_is_refused_with_what_is_needed(monkeypatch, tmp_path):
    monkeypatch.setattr(driver, "NEEDED_BYTES", 10**18)
    with pytest.raises(ClusterError, match=r"it needs 1000000000 GB of disk for .*, and \d+\.\d GB are free"):
        driver.check_machine(tmp_path / "not" / "there")


def test_a_folder_that_the_daemon_sees_differently_is_refused():
    with pytest.raises(ClusterError, match="set PENSTOCK_CACHE to a folder elsewhere"):
        driver.check_machine(driver.Path("/var/lib/penstock"))


FAKE_KIND = """#!/bin/sh
echo "kind $*" >>"$0.calls"
case "$1" in
  create) printf 'Creating cluster ...\\nERROR: could not find a log line\\n' >&2; exit 1 ;;
  export) mkdir -p "$3/x-1" && echo "no iptables here" >"$3/x-1/serial.log"; {export} ;;
esac
"""


@pytest.fixture
def start(cluster, tmp_path):
    """Start a cluster with a kind that fails; return the error and kind's calls."""

    def run(export):
        kind = tmp_path / "kind"
        kind.write_text(FAKE_KIND.format(export=export))
        kind.chmod(0o755)
        docker = Docker(kind=kind, environment={}, enter=list, processes=tmp_path)
        with pytest.raises(ClusterError) as caught:
            BringUp(cluster, docker, known(cluster, nodes=())).run("some-image")
        return str(caught.value), (tmp_path / "kind.calls").read_text().splitlines()

    return run


def test_a_failed_start_tells_the_cause_the_nodes_last_words_and_where_all_logs_are(cluster, start):
    error, calls = start(export="exit 0")
    lines = error.splitlines()
    assert lines[0].startswith("the cluster x does not start: `kind create cluster --retain")
    assert lines[1:] == [
        "  ERROR: could not find a log line",
        "The last words of x-1:",
        "  no iptables here",
        f"All logs: {cluster.logs}",
    ]
    assert "--image=some-image" in calls[0]
    assert calls[1] == f"kind export logs {cluster.logs / 'kind'} --name=penstock-x"
    assert "Creating cluster" in (cluster.logs / "kind-create.log").read_text()


def test_logs_that_cannot_be_had_do_not_hide_the_cause(start):
    error, _ = start(export="echo 'no nodes found' >&2; exit 1")
    assert "could not find a log line" in error
    assert "Not all logs of the nodes could be had." in error
    assert "no iptables here" in error
