import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from e2e.images import archive
from e2e.images.archive import MODIFIED_SECONDS, Config


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "tree"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "tool").write_text("#!/bin/sh\n")
    (root / "bin" / "tool").chmod(0o700)
    (root / "readme").write_text("text")
    (root / "link").symlink_to("/bin/tool")
    (root / "__pycache__").mkdir()
    (root / "__pycache__" / "x.pyc").write_bytes(b"stale")
    return root


def layer(folder: Path, contents, **options) -> Path:
    path = folder / f"{len(list(folder.iterdir()))}.tar"
    archive.write_layer(path, contents, **options)
    return path


def entries(path: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(path) as tar:
        return {entry.name: entry for entry in tar}


def test_the_same_files_give_the_same_bytes(tmp_path, tree):
    """Modification times, modes beyond the x bit and the order of names do not count."""
    first = layer(tmp_path, {"/opt/tree": tree, "/a": tree / "readme"})
    os.utime(tree / "readme", (1, 1))
    (tree / "bin" / "tool").chmod(0o755)
    second = layer(tmp_path, {"/a": tree / "readme", "/opt/tree": tree})
    assert first.read_bytes() == second.read_bytes()


def test_a_changed_file_gives_other_bytes(tmp_path, tree):
    first = layer(tmp_path, {"/opt/tree": tree})
    (tree / "readme").write_text("test")
    assert layer(tmp_path, {"/opt/tree": tree}).read_bytes() != first.read_bytes()


def test_entries_belong_to_root_with_plain_modes(tmp_path, tree):
    found = entries(layer(tmp_path, {"/opt/tree": tree}))
    assert {(entry.uid, entry.gid, entry.uname, entry.mtime) for entry in found.values()} == {
        (0, 0, "", MODIFIED_SECONDS)
    }
    assert {name: oct(entry.mode) for name, entry in found.items() if not entry.issym()} == {
        "opt": "0o755",
        "opt/tree": "0o755",
        "opt/tree/bin": "0o755",
        "opt/tree/bin/tool": "0o755",
        "opt/tree/readme": "0o644",
    }
    assert found["opt/tree/link"].linkname == "/bin/tool"


def test_a_root_file_system_keeps_its_modes_and_compiled_files(tmp_path, tree):
    found = entries(layer(tmp_path, {"/": tree}, keep_owners=True))
    assert found["bin/tool"].mode == 0o700
    assert "__pycache__/x.pyc" in found
    assert "." not in found


def test_an_archive_names_its_config_and_layers_by_their_hashes(tmp_path, tree):
    layers = [layer(tmp_path, {"/a": tree}), layer(tmp_path, {"/b": tree})]
    config = Config(entrypoint=["/a/bin/tool"], environment={"PATH": "/bin"}, user="1:1")
    image = archive.write_archive(tmp_path / "image.tar", "localhost/x:1", layers, config)
    with tarfile.open(image.archive) as tar:
        (manifest,) = json.load(archive.member(tar, "manifest.json"))
        document = archive.member(tar, manifest["Config"]).read()
        digests = [hashlib.sha256(archive.member(tar, name).read()).hexdigest() for name in manifest["Layers"]]
    assert manifest["RepoTags"] == ["localhost/x:1"]
    assert manifest["Config"] == f"{hashlib.sha256(document).hexdigest()}.json"
    described = json.loads(document)
    assert described["rootfs"]["diff_ids"] == [f"sha256:{digest}" for digest in digests]
    assert described["architecture"] == archive.architecture()
    assert described["config"]["Entrypoint"] == ["/a/bin/tool"]
    assert described["config"]["Env"] == ["PATH=/bin"]
    assert described["config"]["User"] == "1:1"


def test_an_archive_is_deterministic(tmp_path, tree):
    made = layer(tmp_path, {"/a": tree})
    images = [archive.write_archive(tmp_path / f"image{n}.tar", "localhost/x:1", [made], Config()) for n in (1, 2)]
    assert images[0].archive.read_bytes() == images[1].archive.read_bytes()


def test_sizes_count_files_unpacked_and_layers_compressed(tmp_path):
    (tmp_path / "zeros").write_bytes(bytes(1_000_000))
    made = layer(tmp_path, {"/zeros": tmp_path / "zeros"})
    image = archive.write_archive(tmp_path / "image.tar", "localhost/x:1", [made, made], Config())
    sizes = archive.sizes(image.archive)
    assert sizes.unpacked == 2_000_000
    assert 0 < sizes.compressed < 20_000


def test_a_folder_in_place_of_a_file_is_an_error(tmp_path):
    with tarfile.open(tmp_path / "image.tar", "w") as tar:
        entry = tarfile.TarInfo("manifest.json")
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry, io.BytesIO())
    with pytest.raises(tarfile.ReadError, match=r"manifest\.json"):
        archive.sizes(tmp_path / "image.tar")
