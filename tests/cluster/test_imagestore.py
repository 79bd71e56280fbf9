"""Image archives: what they hold, and that a node gets each content once."""

import io
import json
import tarfile

import pytest

from e2e.cluster.errors import ClusterError
from e2e.cluster.imagestore import LABEL, Content, load, names, parse_labels, read


def archive(path, manifest):
    with tarfile.open(path, "w") as tar:
        text = json.dumps(manifest).encode()
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    return path


IMAGE = {"Config": "abc.json", "RepoTags": ["localhost/one:1"], "Layers": []}


@pytest.mark.parametrize("config", ["abc.json", "blobs/sha256/abc"], ids=["old layout", "OCI layout"])
def test_tags_and_configuration_digest_are_read(tmp_path, config):
    path = archive(tmp_path / "a.tar", [{**IMAGE, "Config": config}])
    assert read(path) == [Content(("localhost/one:1",), "abc")]


def test_an_image_without_a_tag_is_refused(tmp_path):
    with pytest.raises(ClusterError, match="save it by its name"):
        read(archive(tmp_path / "a.tar", [{**IMAGE, "RepoTags": None}]))


@pytest.mark.parametrize("content", [b"no tar", b""], ids=["other file", "empty file"])
def test_a_file_of_another_kind_is_one_sentence(tmp_path, content):
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(ClusterError, match="is not a docker-archive tar"):
        read(tmp_path / "a.tar")


def test_a_tar_without_a_manifest_is_one_sentence(tmp_path):
    tarfile.open(tmp_path / "a.tar", "w").close()
    with pytest.raises(ClusterError, match="is not a docker-archive tar"):
        read(tmp_path / "a.tar")


HEADER = "REF TYPE DIGEST SIZE PLATFORMS LABELS\n"


def listing(*labels):
    rows = (
        f"localhost/one:{n} application/x sha256:1 6.1 MiB linux/amd64 {label}\n" for n, label in enumerate(labels, 1)
    )
    return HEADER + "".join(rows)


def test_labels_are_found_among_others():
    text = listing(f"io.cri-containerd.image=managed,{LABEL}=abc", "-", "other=x")
    assert parse_labels(text) == {"localhost/one:1": "abc"}


@pytest.mark.parametrize(
    ("present", "imported"),
    [(HEADER, True), (listing(f"{LABEL}=old"), True), (listing("-"), True), (listing(f"a=b,{LABEL}=abc"), False)],
    ids=["no image", "same tag with other content", "imported by hand", "same content"],
)
def test_an_archive_is_imported_unless_tag_and_content_are_there(tmp_path, present, imported):
    path = archive(tmp_path / "a.tar", [IMAGE])
    calls = []

    def ctr(arguments):
        calls.append(list(arguments))
        return present

    assert load(path, ctr=ctr) is imported
    import_and_label = [["images", "import", str(path)], ["images", "label", "localhost/one:1", f"{LABEL}=abc"]]
    assert calls[1:] == (import_and_label if imported else [])


def test_an_archive_is_shown_by_the_names_of_its_images(tmp_path):
    """Every archive is called image.tar; what people know an image by is its tag."""
    path = archive(tmp_path / "image.tar", [IMAGE, {**IMAGE, "RepoTags": ["localhost/two:2"]}])
    assert names(path) == "localhost/one:1, localhost/two:2"
