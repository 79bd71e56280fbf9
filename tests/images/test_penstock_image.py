import shutil

import pytest

from e2e.images import base
from e2e.images import penstock_image as penstock
from e2e.images.repository import REPOSITORY


@pytest.fixture
def repository(tmp_path):
    for name in penstock.SOURCES:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            shutil.copy(source, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("name", penstock.SOURCES)
def test_the_tag_changes_with_every_source(repository, name):
    before = penstock.source_key(repository)
    path = repository / name
    if path.is_dir():
        (path / "penstock" / "added.py").write_text("")
    else:
        path.write_text(path.read_text() + "\n")
    assert penstock.source_key(repository) != before


def test_the_tag_changes_with_the_base(repository, monkeypatch):
    before = penstock.source_key(repository)
    monkeypatch.setattr(base, "key", lambda: "another base")
    assert penstock.source_key(repository) != before


@pytest.mark.parametrize(
    "name",
    [
        "Makefile",
        "tests/test_x.py",
        "operator/penstock/__pycache__/x.cpython-311.pyc",
        "operator/penstock/limiter/liblanes.so.1",
    ],
)
def test_the_tag_stays_when_other_files_change(repository, name):
    before = penstock.source_key(repository)
    (repository / name).parent.mkdir(parents=True, exist_ok=True)
    (repository / name).write_text("changed")
    assert penstock.source_key(repository) == before


@pytest.fixture
def builds(tmp_path, monkeypatch):
    """A cache of its own and a build that only counts."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    built = []

    def build(image, *, context, arguments, base):
        built.append((image.reference, arguments["PYTHON_IMAGE"] == base.reference, context))
        image.archive.write_text("")

    monkeypatch.setattr(penstock.buildah, "build", build)
    monkeypatch.setattr(base, "base", lambda: base.Base(key="b" * 16, folder=tmp_path))
    return built


def test_an_image_that_exists_is_not_built_again(builds):
    assert penstock.image() == penstock.image()
    assert builds == [(penstock.image().reference, True, REPOSITORY)]


def test_only_the_latest_archives_are_kept(builds, monkeypatch):
    archives = []
    for number in range(5):
        monkeypatch.setattr(penstock, "source_key", lambda _, number=number: f"{number:016x}")
        archives.append(penstock.image().archive)
    assert [archive.exists() for archive in archives] == [False, False, True, True, True]
