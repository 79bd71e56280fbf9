"""The choice between the user's Docker daemon with the stock image and a daemon and image of our own."""

import pytest

from e2e.cluster.errors import ClusterError
from e2e.cluster.kind import docker
from e2e.cluster.kind.docker import Machine, decide, is_recent, look


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (Machine(docker=None, cgroups="2"), None),
        (Machine(docker="no `docker` on the PATH"), "no Docker daemon answers (no `docker` on the PATH)"),
        (Machine(docker=None, cgroups="1"), "the stock node image needs cgroup v2, and Docker here has v1"),
        (Machine(docker=None), "the stock node image needs cgroup v2, and Docker here has v?"),
        (Machine(docker=None, cgroups="2", image="timeout"), "the stock node image cannot be pulled (timeout)"),
    ],
    ids=["all there", "no docker", "cgroup v1", "cgroup version unknown", "no registry"],
)
def test_the_stock_image_is_used_unless_something_is_missing(machine, reason):
    assert decide(machine) == reason


@pytest.mark.parametrize(
    ("told", "recent"),
    [
        ("kind v0.33.0 go1.26.1 linux/amd64", True),
        ("kind v0.33.1 go1.26.1 linux/amd64", True),
        ("kind v0.100.0-alpha+abc go1.30 linux/amd64", True),
        ("kind v1.0.0 go1.30 linux/amd64", True),
        ("kind v0.32.9 go1.26.1 linux/amd64", False),
        ("something else", False),
        ("", False),
    ],
)
def test_a_kind_on_the_path_is_used_if_it_knows_the_stock_image(told, recent):
    assert is_recent(told) is recent


FAKE = """#!/bin/sh
echo "$*" >>"$CALLS"
case "$1 $2" in
  "info --format") {info} ;;
  "image inspect") {inspect} ;;
  "pull --quiet") {pull} ;;
  *) echo "unexpected: $*" >&2; exit 9 ;;
esac
"""
V2 = "echo 2"
ABSENT = "echo 'No such image' >&2; exit 1"


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Put a `docker` on the PATH that answers as told; return what it was called with."""
    calls = tmp_path / "calls"
    calls.touch()

    def place(*, info, inspect="exit 0", pull="exit 0"):
        program = tmp_path / "docker"
        program.write_text(FAKE.format(info=info, inspect=inspect, pull=pull))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        monkeypatch.setenv("CALLS", str(calls))
        return calls

    return place


def test_a_machine_without_docker_is_seen(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert look() == Machine(docker="no `docker` on the PATH")


def test_a_client_without_a_daemon_is_seen_with_its_own_words(fake):
    fake(info="echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    assert look() == Machine(docker="Cannot connect to the Docker daemon")


def test_nothing_is_pulled_on_cgroup_v1(fake):
    calls = fake(info="echo 1")
    assert look() == Machine(docker=None, cgroups="1")
    assert "pull" not in calls.read_text()


def test_an_image_that_is_there_is_not_pulled(fake):
    calls = fake(info=V2)
    assert look() == Machine(docker=None, cgroups="2")
    assert "pull" not in calls.read_text()


def test_an_image_that_is_not_there_is_pulled(fake):
    calls = fake(info=V2, inspect=ABSENT)
    assert look() == Machine(docker=None, cgroups="2")
    assert f"pull --quiet {docker.STOCK_IMAGE}" in calls.read_text()


def test_a_pull_that_fails_is_seen_with_its_reason(fake):
    fake(info=V2, inspect=ABSENT, pull="echo 'dial tcp: no route to host' >&2; exit 1")
    assert look() == Machine(docker=None, cgroups="2", image="dial tcp: no route to host")


def test_a_failed_command_says_what_it_said(fake):
    fake(info="exit 0")
    with pytest.raises(ClusterError, match=r"`docker rm x` failed:\n  unexpected: rm x"):
        docker.plain().run("docker", "rm", "x")


def test_a_command_that_hangs_is_an_error(fake):
    fake(info="exec sleep 30")
    with pytest.raises(ClusterError, match=r"has not ended after 0\.2 s"):
        docker.plain().run("docker", "info", "--format", "x", seconds=0.2)


def test_a_container_on_another_machine_is_told_apart(tmp_path):
    remote = docker.Docker(kind=tmp_path, environment={}, enter=lambda argv: ["echo", "12"], processes=tmp_path)
    with pytest.raises(ClusterError, match="does not run on this machine"):
        remote.network_of("node")


def test_the_network_of_a_container_is_that_of_its_process(tmp_path):
    (tmp_path / "12" / "ns" / "net").mkdir(parents=True)
    here = docker.Docker(kind=tmp_path, environment={}, enter=lambda argv: ["echo", "12"], processes=tmp_path)
    assert here.network_of("node") == tmp_path / "12" / "ns" / "net"


def test_the_address_is_that_of_the_network_asked_for(tmp_path):
    told = '{"bridge": {"IPAddress": "172.17.0.2"}, "kind": {"IPAddress": "198.18.0.2"}}'
    one = docker.Docker(kind=tmp_path, environment={}, enter=lambda argv: ["echo", told], processes=tmp_path)
    assert one.address_of("node", "kind") == "198.18.0.2"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", "  (it said nothing)"),
        ("one\n\ntwo\n", "  one\n  two"),
        ("one\ntwo\nthree\nfour", "  two\n  three\n  four"),
        ("noise\nERROR: bad\nOutput:\nx\ny\nz", "  ERROR: bad\n  Output:\n  x"),
    ],
    ids=["nothing", "short", "long", "with an error"],
)
def test_last_lines_start_at_the_error_if_there_is_one(text, shown):
    assert docker.last_lines(text, count=3) == shown


def test_all_that_a_command_says_can_be_kept(fake, tmp_path):
    fake(info="echo out; echo err >&2")
    log = tmp_path / "log"
    assert docker.plain().run("docker", "info", "--format", log=log) == "out\n"
    assert log.read_text() == "out\nerr\n"
