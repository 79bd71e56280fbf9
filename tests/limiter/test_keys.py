"""API keys: whose a key is, and that no fault of the folder lets anybody in or shows a key."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from penstock.limiter.keys import FILE_LIMIT_BYTES, KEY_LIMIT_BYTES, KeyFolder

SECRET = "sk-very-secret"


def mount(folder: Path, files: dict[str, str], *, version: int) -> None:
    """Write files as the kubelet does: a new folder, and one symbolic link that is swapped."""
    data = folder / f"..2026_11_30_{version}"
    data.mkdir(parents=True)
    for name, text in files.items():
        (data / name).write_text(text)
    (folder / "..data_tmp").symlink_to(data.name)
    os.replace(folder / "..data_tmp", folder / "..data")  # noqa: PTH105 - what the kubelet does
    for name in files:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    for path in folder.iterdir():
        if path.is_symlink() and path.name != "..data" and path.name not in files:
            path.unlink()


def test_no_tenant_is_called_like_the_callers_that_are_none(tmp_path: Path) -> None:
    mount(tmp_path, {"default": SECRET}, version=1)
    keys = KeyFolder(tmp_path)
    assert not keys.refresh()
    assert "give the tenant another name" in str(keys.problem)
    assert keys.tenant(SECRET.encode()) is None


def test_a_key_names_its_tenant(tmp_path: Path) -> None:
    mount(tmp_path, {"team-a": f"{SECRET}\n\n  other-key \r\n", "team-b": "third"}, version=1)
    keys = KeyFolder(tmp_path)
    assert keys.tenant(SECRET.encode()) is None  # nothing was read yet
    assert keys.refresh()
    assert keys.loaded
    assert keys.tenants == 2
    assert keys.tenant(SECRET.encode()) == "team-a"
    assert keys.tenant(b"other-key") == "team-a"
    assert keys.tenant(b"third") == "team-b"


@pytest.mark.parametrize(
    "key", [b"", b"third ", b"THIRD", b"thir", b"thirdd", b"third\n", b"..data", b"\xff", b"\0" * 32]
)
def test_what_is_nearly_a_key_is_none(tmp_path: Path, key: bytes) -> None:
    mount(tmp_path, {"team-b": "third\n"}, version=1)
    keys = KeyFolder(tmp_path)
    keys.refresh()
    assert keys.tenant(key) is None


def test_a_swapped_folder_takes_effect_once(tmp_path: Path) -> None:
    mount(tmp_path, {"team-a": "one", "gone": "two"}, version=1)
    keys = KeyFolder(tmp_path)
    assert keys.refresh()
    assert not keys.refresh()
    mount(tmp_path, {"team-a": "three"}, version=2)
    assert keys.refresh()
    assert not keys.refresh()
    assert [keys.tenant(key) for key in (b"one", b"two", b"three")] == [None, None, "team-a"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        pytest.param({"a": SECRET, "b": f"x\n{SECRET}"}, ["b: line 2 is also a key in a"], id="one key in two files"),
        pytest.param({"a": f"{SECRET} {SECRET}"}, ["a: line 1 is no key"], id="a blank in a key"),
        pytest.param({"a": f"x\n{SECRET}é"}, ["a: line 2 is no key"], id="what no header can carry"),
        pytest.param({"a": "x" * (KEY_LIMIT_BYTES + 1)}, ["a: line 1 is no key"], id="a key without end"),
        pytest.param({"a": "x\n" * FILE_LIMIT_BYTES}, ["a: the file is larger"], id="a file without end"),
    ],
)
def test_a_fault_is_told_by_file_and_never_by_key(
    tmp_path: Path, files: dict[str, str], words: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    mount(tmp_path, {"a": "old-key"}, version=1)
    keys = KeyFolder(tmp_path)
    keys.refresh()
    mount(tmp_path, files, version=2)
    with caplog.at_level(logging.DEBUG):
        assert not keys.refresh()
        assert not keys.refresh()
    assert keys.problem is not None
    assert all(word in keys.problem for word in words)
    assert keys.rejected == 1
    assert len(caplog.records) == 1
    assert SECRET not in caplog.text
    assert keys.tenant(b"old-key") == "a"  # the last good keys stay in force
    assert keys.tenant(SECRET.encode()) is None
    mount(tmp_path, {"a": "new-key"}, version=3)
    assert keys.refresh()
    assert keys.problem is None
    assert keys.tenant(b"new-key") == "a"


def test_the_same_key_twice_in_one_file_is_no_fault(tmp_path: Path) -> None:
    mount(tmp_path, {"a": "k\nk\n"}, version=1)
    keys = KeyFolder(tmp_path)
    assert keys.refresh()
    assert keys.tenant(b"k") == "a"


def test_a_folder_that_comes_late_is_read_when_it_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "tenants"
    keys = KeyFolder(folder)
    assert not keys.refresh()
    assert keys.problem is not None
    assert not keys.loaded
    mount(folder, {"a": "k"}, version=1)
    assert keys.refresh()
    assert keys.tenant(b"k") == "a"


def test_a_file_that_becomes_readable_is_read_although_it_did_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(path: Path) -> bytes:
        raise PermissionError(f"{path}: not now")

    mount(tmp_path, {"a": "k"}, version=1)
    keys = KeyFolder(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", unreadable)
        assert not keys.refresh()
    assert keys.problem is not None
    assert keys.refresh()
    assert keys.tenant(b"k") == "a"


def test_a_link_that_leads_nowhere_is_a_fault(tmp_path: Path) -> None:
    mount(tmp_path, {"a": "k"}, version=1)
    (tmp_path / "b").symlink_to("nowhere")
    keys = KeyFolder(tmp_path)
    assert not keys.refresh()
    assert keys.problem is not None
    (tmp_path / "b").unlink()
    assert keys.refresh()


def test_keys_are_kept_as_hashes_only(tmp_path: Path) -> None:
    mount(tmp_path, {"a": SECRET}, version=1)
    keys = KeyFolder(tmp_path)
    keys.refresh()
    assert SECRET not in repr(vars(keys))
