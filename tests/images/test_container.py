import tarfile

import pytest

from e2e.images import archive, container
from e2e.images.archive import Config


@pytest.fixture
def image(tmp_path):
    (tmp_path / "lower").mkdir()
    (tmp_path / "lower" / "kept").write_text("kept")
    (tmp_path / "lower" / "removed").write_text("removed")
    (tmp_path / "upper").mkdir()
    (tmp_path / "upper" / ".wh.removed").write_text("")
    for name in ("lower", "upper"):
        archive.write_layer(tmp_path / f"{name}.tar", {"/data": tmp_path / name})
    layers = [tmp_path / "lower.tar", tmp_path / "upper.tar"]
    return archive.write_archive(tmp_path / "image.tar", "localhost/x:1", layers, Config(entrypoint=["/run"]))


def test_layers_are_applied_in_order_with_their_removals(image):
    with container.unpacked(image) as unpacked:
        assert sorted(path.name for path in (unpacked.root / "data").iterdir()) == ["kept"]
        assert unpacked.config["Entrypoint"] == ["/run"]


def test_the_folder_is_gone_afterwards(image):
    with container.unpacked(image) as unpacked:
        root = unpacked.root
    assert not root.exists()


def test_a_broken_layer_is_an_error(image, tmp_path):
    (tmp_path / "junk.tar").write_bytes(b"junk" * 1000)
    broken = archive.write_archive(tmp_path / "broken.tar", "localhost/x:1", [tmp_path / "junk.tar"], Config())
    with pytest.raises(tarfile.ReadError), container.unpacked(broken):
        pass
