import hashlib
import subprocess
from pathlib import Path

import pytest

from e2e.images import pypi
from e2e.images.errors import ImageBuildError

GOOD = hashlib.sha256(b"wheel").hexdigest()


@pytest.fixture
def pip(monkeypatch):
    """pip replaced by a program that writes one file, or fails with `pip["error"]`."""
    state = {"error": ""}

    def run(argv, **options):
        if "download" in argv and not state["error"]:
            folder = Path(argv[argv.index("--dest") + 1])
            folder.mkdir(parents=True)
            (folder / "x-1.whl").write_bytes(b"wheel")
        return subprocess.CompletedProcess(argv, int(bool(state["error"]) and "download" in argv), "", state["error"])

    monkeypatch.setattr(pypi.subprocess, "run", run)
    return state


def test_the_pinned_file_is_returned(pip, tmp_path):
    assert pypi.fetch("x==1", sha256=GOOD, folder=tmp_path).read_bytes() == b"wheel"


def test_another_file_than_the_pinned_one_is_refused(pip, tmp_path):
    with pytest.raises(ImageBuildError, match=rf"x-1\.whl has sha256 {GOOD}, but {'0' * 64} is pinned for x==1"):
        pypi.fetch("x==1", sha256="0" * 64, folder=tmp_path)


def test_the_reason_of_pip_is_told(pip, tmp_path):
    pip["error"] = "ERROR: No matching distribution found for x==1\n[notice] A new release of pip is available\n"
    with pytest.raises(ImageBuildError, match=r"cannot download x==1: ERROR: No matching distribution.*Is PyPI"):
        pypi.fetch("x==1", sha256=GOOD, folder=tmp_path)
