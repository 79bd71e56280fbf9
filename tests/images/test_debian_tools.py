import subprocess

import pytest

from e2e.images import debian
from e2e.images.errors import ImageBuildError


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine that has apt-get and nothing else; records the calls of apt-get and the policy at their time."""
    state = {"has": {"apt-get"}, "calls": [], "policies": [], "failures": 0}
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(debian, "POLICY", policy)
    monkeypatch.setattr(debian, "find", lambda command: command if command in state["has"] else None)
    monkeypatch.setattr(debian.os, "geteuid", lambda: 0)

    def run(argv, **options):
        state["calls"].append([word for word in argv[1:] if word in {"update", "install", "ninja-build", "g++"}])
        state["policies"].append(policy.read_text() if policy.exists() else None)
        failed = state["failures"] > 0 and "install" in argv
        state["failures"] -= failed
        return subprocess.CompletedProcess(argv, int(failed), "", "E: no such package\n")

    monkeypatch.setattr(debian.subprocess, "run", run)
    state["policy"] = policy
    return state


def test_nothing_is_installed_when_all_is_there(machine):
    machine["has"].add("ninja")
    debian.ensure({"ninja": "ninja-build"})
    assert machine["calls"] == []


def test_only_what_is_missing_is_installed_and_said(machine, capsys):
    machine["has"].add("ninja")
    debian.ensure({"ninja": "ninja-build", "g++": "g++"})
    assert machine["calls"] == [["install", "g++"]]
    assert "installing Debian packages: g++" in capsys.readouterr().err


def test_stale_lists_are_renewed_once(machine):
    machine["failures"] = 1
    debian.ensure({"g++": "g++"})
    assert machine["calls"] == [["install", "g++"], ["update"], ["install", "g++"]]


def test_the_reason_of_apt_is_told(machine):
    machine["failures"] = 2
    with pytest.raises(ImageBuildError, match="E: no such package"):
        debian.ensure({"g++": "g++"})
    assert not machine["policy"].exists()


def test_no_service_starts_during_an_installation_and_the_policy_goes_afterwards(machine):
    debian.ensure({"g++": "g++"})
    assert machine["policies"] == [debian.NO_STARTS]
    assert not machine["policy"].exists()


def test_a_policy_of_the_machine_stays(machine):
    machine["policy"].write_text("own")
    debian.ensure({"g++": "g++"})
    assert machine["policy"].read_text() == "own"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda state, patch: state["has"].clear(), r"no apt; install g\+\+", id="no apt"),
        pytest.param(
            lambda state, patch: patch.setattr(debian.os, "geteuid", lambda: 1000),
            r"run `apt-get install g\+\+` as root",
            id="not root",
        ),
    ],
)
def test_a_machine_that_cannot_install_is_told_what_to_do(machine, monkeypatch, change, message):
    change(machine, monkeypatch)
    with pytest.raises(ImageBuildError, match=message):
        debian.ensure({"g++": "g++"})
    assert machine["calls"] == []
