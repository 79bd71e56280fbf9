"""Compiling the limiter's lanes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from scripts import native


@pytest.fixture(autouse=True)
def no_choice(monkeypatch) -> None:
    monkeypatch.delenv("CC", raising=False)


def test_it_builds_a_library_of_its_own_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "lanes"
    native.build(target)
    assert target.read_bytes().startswith(b"\x7fELF")
    assert list(tmp_path.iterdir()) == [target]


def test_the_named_compiler_comes_first(monkeypatch) -> None:
    monkeypatch.setenv("CC", "ccache gcc-14 -m64")
    assert native.compiler() == ["ccache", "gcc-14", "-m64"]


def test_a_compiler_of_the_machine_comes_before_the_one_for_python(monkeypatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if name == "clang" else None)
    monkeypatch.setattr(native, "find_spec", lambda _name: object())
    assert native.compiler() == ["clang"]
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert native.compiler() == [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"]


@pytest.mark.parametrize(
    ("compiler", "words"),
    [
        ("/no/such/cc", "cannot run /no/such/cc: No such file"),
        ("false", "`false -std=gnu11 -O2 …` failed"),
        ("true", "`true -std"),
    ],
    ids=["missing", "failing", "doing nothing"],
)
def test_a_compiler_that_does_not_work_is_named_and_what_was_there_stays(
    monkeypatch, tmp_path: Path, compiler: str, words: str
) -> None:
    target = tmp_path / "lanes"
    target.write_text("before")
    monkeypatch.setenv("CC", compiler)
    with pytest.raises(native.NativeBuildError) as caught:
        native.build(target)
    assert words in str(caught.value)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    with pytest.raises(native.NativeBuildError, match=f"cannot write to {tmp_path}/missing: No such file"):
        native.build(tmp_path / "missing" / "lanes")


@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_name_names_none(monkeypatch, value: str) -> None:
    monkeypatch.setenv("CC", value)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert native.compiler() == ["cc"]


def test_without_a_compiler_it_says_what_to_install(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    monkeypatch.setattr(native, "find_spec", lambda _name: None)
    with pytest.raises(native.NativeBuildError, match="gcc and libc6-dev"):
        native.build(tmp_path / "lanes")


def test_the_package_with_a_compiler_is_the_one_of_the_project() -> None:
    assert native.requirement().startswith("ziglang")
