"""What a download is told: a folder that follows from the request, and settings that survive the environment."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.download import DownloadSettings, folder
from penstock.api.errors import InvalidSettings

REQUEST = {
    "repository": "Qwen/Qwen2.5-7B-Instruct",
    "revision": "main",
    "file": None,
    "endpoint": "https://huggingface.co",
}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")


def test_the_folder_can_be_read_by_people():
    assert re.fullmatch(r"Qwen--Qwen2\.5-7B-Instruct-[0-9a-f]{8}", folder(**REQUEST))


def test_the_folder_of_a_request_never_changes():
    """A new name would mean that every backend downloads its model again."""
    assert folder(**REQUEST) == "Qwen--Qwen2.5-7B-Instruct-1f9601c7"


@pytest.mark.parametrize(
    "change",
    [
        {"repository": "Qwen/Qwen2.5-7B"},
        {"revision": "v1"},
        {"file": "a.gguf"},
        {"endpoint": "https://mirror.example"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_request_has_another_folder(change):
    assert folder(**REQUEST) != folder(**{**REQUEST, **change})


@given(
    repository=st.from_regex(r"([A-Za-z0-9][A-Za-z0-9_.-]*/)?[A-Za-z0-9_][A-Za-z0-9_.-]*", fullmatch=True),
    file=st.none() | st.text(min_size=1),
)
def test_every_folder_is_a_name_that_the_settings_take(repository, file):
    name = folder(**{**REQUEST, "repository": repository, "file": file})
    assert NAME.fullmatch(name)
    assert len(name) <= 100
    assert DownloadSettings(repository="a/b", volume="/model", folder=name).folder == name


def test_settings_read_back_what_they_wrote():
    settings = DownloadSettings(**REQUEST, token_path="/etc/token", volume="/model", folder="x")
    assert DownloadSettings.from_env(settings.to_env()) == settings
    assert "PENSTOCK_DOWNLOAD_FILE" not in settings.to_env()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ENDPOINT", "ftp://hub"),
        ("ENDPOINT", "hub"),
        ("REPOSITORY", "a/b/c"),
        ("FOLDER", "../x"),
        ("FOLDER", ".hidden"),
    ],
)
def test_a_wrong_variable_is_named(name, value):
    environment = DownloadSettings(**REQUEST, volume="/model", folder="x").to_env()
    with pytest.raises(InvalidSettings, match=f"^PENSTOCK_DOWNLOAD_{name} is wrong"):
        DownloadSettings.from_env({**environment, f"PENSTOCK_DOWNLOAD_{name}": value})
