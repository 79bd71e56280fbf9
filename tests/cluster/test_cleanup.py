"""Removal from nothing but the folder: processes by their mark, mounts innermost first, files, and logs if asked."""

import os
import subprocess
from pathlib import Path

import pytest

from e2e.cluster import cgroups, cleanup
from e2e.cluster.cleanup import below, mark
from e2e.cluster.folders import Folders
from e2e.cluster.process import identity


@pytest.fixture
def folders(tmp_path):
    found = Folders(tmp_path / "cluster", "penstock-test-no-such-group")
    found.logs.mkdir(parents=True)
    (found.logs / "etcd.log").write_text("a line")
    (found.root / "node-1/kubelet").mkdir(parents=True)
    found.kubeconfig.write_text("{}")
    return found


def test_mounts_in_a_folder_are_listed_innermost_first():
    targets = ("/c/one", "/c/one/deep/er", "/c/one-more", "/", "/c/one/x")
    text = "".join(f"device {target} ext4 rw 0 0\n" for target in targets)
    found = below(Path("/c/one"), cgroups.parse_mounts(text))
    assert [str(path) for path in found] == ["/c/one/deep/er", "/c/one/x", "/c/one"]


def test_everything_goes_without_any_state_file(folders):
    name, _, value = mark(folders.root).partition("=")
    with subprocess.Popen(["sleep", "60"], env={**os.environ, name: value}) as process:
        cleanup.remove(folders)
        assert identity(process.pid) is None
    assert not folders.root.exists()


def test_what_a_process_has_started_before_its_end_is_found_too(folders, monkeypatch):
    """One look is not enough: between being seen and being killed a process may start another."""
    looks, ended = [["the first"], ["its child"], []], []
    monkeypatch.setattr(cleanup, "marked", lambda _mark: looks.pop(0))
    monkeypatch.setattr(cleanup, "end", lambda found, **_: ended.extend(found))
    cleanup.remove(folders)
    assert ended == ["the first", "its child"]


def test_logs_stay_for_whoever_looks_for_the_cause(folders):
    cleanup.remove(folders, keep_logs=True)
    assert [path.name for path in folders.root.iterdir()] == ["logs"]
    assert (folders.logs / "etcd.log").read_text() == "a line"


def test_removing_twice_is_harmless(folders):
    cleanup.remove(folders)
    cleanup.remove(folders)
    assert not folders.root.exists()


def test_a_link_is_removed_and_not_followed(folders, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (folders.root / "link").symlink_to(precious)
    cleanup.remove(folders)
    assert (precious / "file").exists()
