import configparser
import subprocess
from pathlib import Path

import pytest

from e2e.images import archive, buildah
from e2e.images.errors import ImageBuildError

BASE = archive.Image("localhost/base:1", Path("base.tar"))


@pytest.mark.parametrize(
    ("listed", "settings"),
    [
        pytest.param("", {}, id="nothing set"),
        pytest.param("global.index-url='https://a.invalid/x'", {"index-url": "https://a.invalid/x"}, id="file"),
        pytest.param(
            ":env:.index-url='https://env.invalid'\nglobal.index-url='https://file.invalid'",
            {"index-url": "https://env.invalid"},
            id="environment wins",
        ),
        pytest.param(
            "global.extra-index-url='https://a.invalid\\nhttps://b.invalid'",
            {"extra-index-url": "https://a.invalid https://b.invalid"},
            id="several values",
        ),
        pytest.param(":env:.find-links='/wheels'\nglobal.cert='/x.pem'", {}, id="paths of this machine stay out"),
    ],
)
def test_pip_settings_that_reach_an_index_are_passed_on(listed, settings):
    assert buildah.parse_pip_settings(listed) == settings


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """buildah replaced by a recorder; `calls.fail` names the command that fails."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    monkeypatch.setattr(buildah.debian, "ensure", lambda tools: None)

    class Calls(list):
        fail = ""
        pip_conf = ""
        listed = ""

    recorded = Calls()

    def run(argv, **options):
        if "buildah" not in argv:
            return subprocess.CompletedProcess(argv, 0, "global.index-url='https://a.invalid'\n", "")
        recorded.append(argv)
        for option in argv:
            if option.startswith("--secret=id=pip,src="):
                recorded.pip_conf = Path(option.removeprefix("--secret=id=pip,src=")).read_text()
        failed = recorded.fail in argv if recorded.fail else False
        told = 'a reason\nError: building at STEP "RUN x": exit status 1\n' if failed else ""
        return subprocess.CompletedProcess(argv, int(failed), recorded.listed if "images" in argv else "", told)

    monkeypatch.setattr(buildah.subprocess, "run", run)
    return recorded


def build(tmp_path):
    image = archive.Image("localhost/x:2", tmp_path / "image.tar")
    buildah.build(image, context=tmp_path, arguments={"PYTHON_IMAGE": BASE.reference}, base=BASE)


def test_the_storage_is_the_caches_own_and_is_not_left_mounted(calls, tmp_path):
    build(tmp_path)
    assert calls
    root = str(tmp_path / "buildah" / "root")
    assert all(argv[:5] == ["unshare", "--mount", "buildah", "--root", root] for argv in calls)


def test_pip_settings_are_a_secret_and_no_argument(calls, tmp_path):
    build(tmp_path)
    parser = configparser.ConfigParser()
    parser.read_string(calls.pip_conf)
    assert parser["global"]["index-url"] == "https://a.invalid"
    assert not [argv for argv in calls if "a.invalid" in " ".join(argv)]


def test_older_builds_of_the_image_are_forgotten(calls, tmp_path):
    calls.listed = "localhost/x:1\nlocalhost/x:2\nlocalhost/y:1\n"
    build(tmp_path)
    assert [argv[-1] for argv in calls if "rmi" in argv] == ["localhost/x:1"]


def test_a_failed_build_tells_the_reason_without_the_repeated_line(calls, tmp_path):
    calls.fail = "bud"
    with pytest.raises(ImageBuildError, match=r"^buildah bud failed:\na reason$"):
        build(tmp_path)
