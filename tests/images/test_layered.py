import subprocess
import tarfile
from contextlib import contextmanager

import pytest

from e2e.images import archive, layered
from e2e.images.archive import Config
from e2e.images.errors import ImageBuildError


class Trial:
    """Stands in for the finished image: `status` is what its check returns."""

    status = 0

    def execute(self, *argv):
        return subprocess.CompletedProcess(argv, self.status, "", "it does not start\n")


@pytest.fixture
def trial(monkeypatch, tmp_path):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    (tmp_path / "etc").mkdir()
    archive.write_layer(tmp_path / "layer.tar", {"/etc": tmp_path / "etc"})
    monkeypatch.setattr(layered.base, "base", lambda: layered.base.Base(key="b", folder=tmp_path))
    made = Trial()

    @contextmanager
    def unpacked(image):
        yield made

    monkeypatch.setattr(layered.container, "unpacked", unpacked)
    return made


def recipe(built=None, **changes):
    def contents(scratch):
        if built is not None:
            built.append(scratch)
        (scratch / "tool").write_text("x")
        return {"/tool": scratch / "tool"}

    values = {"name": "x", "key": "k", "contents": contents, "config": Config(), "usually": "1 s", "check": ("/tool",)}
    return layered.Recipe(**values | changes)


def test_the_image_is_the_base_and_one_layer(trial):
    with tarfile.open(layered.image(recipe()).archive) as tar:
        layers = [name for name in tar.getnames() if name.endswith(".tar")]
    assert len(layers) == 2


def test_an_image_that_exists_is_not_built_again(trial):
    built = []
    assert layered.image(recipe(built)) == layered.image(recipe(built))
    assert len(built) == 1


@pytest.mark.parametrize("change", [{"key": "other"}, {"config": Config(user="1")}, {"name": "y"}], ids=str)
def test_the_reference_changes_with_what_goes_in(trial, change):
    assert layered.image(recipe()).reference != layered.image(recipe(**change)).reference


def test_the_reference_changes_with_the_base(trial, monkeypatch):
    before = layered.image(recipe()).reference
    monkeypatch.setattr(layered.base, "key", lambda: "another base")
    assert layered.image(recipe()).reference != before


def test_an_image_whose_check_fails_is_not_kept(trial):
    trial.status = 1
    with pytest.raises(ImageBuildError, match=r"`/tool` fails in the finished image x: it does not start"):
        layered.image(recipe())
    trial.status = 0
    assert layered.image(recipe()).archive.exists()
