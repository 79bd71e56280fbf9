"""Which Go is accepted, what is said when none is, and what a cached program depends on."""

import pytest

from e2e import cache
from e2e.cluster import gobuild
from e2e.cluster.errors import ClusterError
from e2e.cluster.gobuild import Go, Program, find_go, is_recent


@pytest.mark.parametrize(
    ("version", "recent"),
    [
        ("go1.26.8", True),
        ("go1.26.9", True),
        ("go1.27", True),
        ("go1.27.1", True),
        ("go1.26.10 X:nodwarf5", True),
        ("go2.0", True),
        ("go1.27rc1", True),
        ("go1.26.7", False),
        ("go1.26", False),
        ("go1.26rc2", False),
        ("go1.9.9", False),
        ("devel go1.27-abcdef", False),
        ("", False),
    ],
)
def test_versions_are_compared_as_numbers(version, recent):
    assert is_recent(version) is recent


def test_no_go_is_one_sentence_that_names_the_version(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match=r"not on the PATH; install Go 1\.26\.8 or newer"):
        find_go()


def fake_go(folder, script):
    go = folder / "go"
    go.write_text(f"#!/bin/sh\n{script}\n")
    go.chmod(0o755)
    return str(go)


def test_an_old_go_is_one_sentence_that_names_both_versions(monkeypatch, tmp_path):
    fake_go(tmp_path, "echo go1.22.1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match=r"is go1\.22\.1, but Go 1\.26\.8 or newer is needed"):
        find_go()


@pytest.fixture
def pause(monkeypatch, tmp_path):
    """The sources of a small program in a folder of their own, and a cache of their own."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "modules" / "pause"
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text("module example\n")
    monkeypatch.setattr(gobuild, "MODULES", tmp_path / "modules")
    return folder


COPY_ARGUMENTS = 'while [ "$1" != -o ]; do shift; done; env > "$2"'


def test_a_program_is_built_once_and_without_c(pause, monkeypatch, tmp_path):
    calls = []
    go = Go(fake_go(tmp_path, COPY_ARGUMENTS), "go1.27")
    monkeypatch.setattr(gobuild, "find_go", lambda: calls.append(1) or go)
    first = gobuild.binary("pause")
    inode = first.stat().st_ino
    assert gobuild.binary("pause").stat().st_ino == inode
    assert "CGO_ENABLED=0" in first.read_text()
    assert first.is_relative_to(cache.cache_root() / "pause")


def test_a_changed_module_or_compiler_is_a_new_build(pause, monkeypatch, tmp_path):
    command = fake_go(tmp_path, COPY_ARGUMENTS)
    monkeypatch.setattr(gobuild, "find_go", lambda: Go(command, "go1.27"))
    built = {gobuild.binary("pause")}
    (pause / "go.mod").write_text("module example // changed\n")
    built.add(gobuild.binary("pause"))
    monkeypatch.setattr(gobuild, "find_go", lambda: Go(command, "go1.28"))
    built.add(gobuild.binary("pause"))
    assert len(built) == 3


def test_a_failed_build_says_what_the_compiler_said(pause, monkeypatch, tmp_path):
    go = Go(fake_go(tmp_path, "echo 'proxy: connection refused' >&2; exit 1"), "go1.27")
    monkeypatch.setattr(gobuild, "find_go", lambda: go)
    with pytest.raises(ClusterError, match="proxy: connection refused"):
        gobuild.binary("pause")


def test_kubernetes_programs_carry_their_version():
    assert "gitVersion=v1.34.4" in gobuild.PROGRAMS["kube-apiserver"].linker_flags
    assert Program("m", "p").linker_flags == "-s -w"


@pytest.mark.parametrize("name", sorted(gobuild.PROGRAMS))
def test_every_program_has_a_pinned_module(name):
    folder = gobuild.MODULES / gobuild.PROGRAMS[name].module
    assert (folder / "go.mod").is_file()
    # A module without requirements has no go.sum; every other must have one.
    assert (folder / "go.sum").is_file() or "require" not in (folder / "go.mod").read_text()
