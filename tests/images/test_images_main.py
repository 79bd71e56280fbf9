from pathlib import Path

import pytest

from e2e import images
from e2e.images import __main__ as program

IMAGE = images.Image("localhost/x:1", Path("/cache/image.tar"))


@pytest.fixture(autouse=True)
def one_image(monkeypatch):
    monkeypatch.setattr(images, "IMAGES", {"x": lambda: IMAGE, "y": lambda: IMAGE})
    monkeypatch.setattr(images, "sizes", lambda image: images.Sizes(compressed=60_000_000, unpacked=170_000_000))


def test_reference_sizes_and_archive_are_printed(capsys):
    assert program.main(["x"]) == 0
    line = capsys.readouterr().out
    for part in ("localhost/x:1", "60 MB compressed", "170 MB unpacked", "bookworm", "/cache/image.tar"):
        assert part in line


def test_only_the_reference_on_demand(capsys):
    assert program.main(["--reference", "x"]) == 0
    assert capsys.readouterr().out == "localhost/x:1\n"


def test_an_unknown_name_lists_the_known_ones(capsys):
    with pytest.raises(SystemExit, match="2"):
        program.main(["z"])
    assert "there is: x, y" in capsys.readouterr().err
