"""What is built once and kept: keys that tell contents apart, and folders that are complete or absent."""

import threading
from pathlib import Path

import pytest

from e2e import cache


@pytest.fixture(autouse=True)
def root(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_digest_tells_where_one_part_ends_and_the_next_begins():
    assert len({cache.digest("ab", "c"), cache.digest("a", "bc"), cache.digest("abc")}) == 3


def test_a_folder_counts_with_names_and_contents(tmp_path):
    def digest_of(files: dict[str, str]) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return cache.digest(folder)

    one = digest_of({"a": "1", "sub/b": "2"})
    assert one == digest_of({"sub/b": "2", "a": "1", "__pycache__/a.pyc": "compiled"})
    assert len({one, digest_of({"a": "2", "sub/b": "1"}), digest_of({"a": "1", "b": "2"})}) == 3


def test_what_is_there_is_not_built_again():
    built = []

    def recipe(folder: Path) -> None:
        built.append(folder)
        (folder / "file").touch()

    first = cache.build("thing", "k1", recipe, usually="1 s")
    assert cache.build("thing", "k1", recipe, usually="1 s") == first
    assert cache.build("thing", "k2", recipe, usually="1 s") != first
    assert len(built) == 2
    assert (first / "file").exists()


def test_a_build_that_fails_leaves_nothing(root):
    def recipe(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        cache.build("thing", "k", recipe, usually="1 s")
    assert [path.name for path in (root / "thing").iterdir()] == [".lock"]


def test_of_two_commands_one_builds_and_the_other_finds_it():
    begun, go_on = threading.Event(), threading.Event()
    built, found = [], []

    def recipe(folder: Path) -> None:
        built.append(folder)
        begun.set()
        assert go_on.wait(timeout=60)

    def command() -> None:
        found.append(cache.build("thing", "k", recipe, usually="1 s"))

    commands = [threading.Thread(target=command) for _ in range(2)]
    commands[0].start()
    assert begun.wait(timeout=60)
    commands[1].start()
    go_on.set()
    for one in commands:
        one.join(timeout=60)
    assert len(built) == 1
    assert found == [found[0]] * 2


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.24, "4.2 s"), (59.94, "59.9 s"), (60, "1 min 00 s"), (187, "3 min 07 s")]
)
def test_durations_read_as_people_say_them(seconds, text):
    assert cache.duration(seconds) == text
