"""Images on a node: docker-archive tars in, straight into the node's containerd, with no registry anywhere.

A tag alone does not tell what is behind it, so the digest of the image's configuration, which names its contents, is
kept as a label on the node. An archive is skipped only when tag and digest are both there.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e import cache
from e2e.cluster import gobuild, parts
from e2e.cluster.errors import ClusterError

LABEL = "penstock.dev/configuration"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Content:
    """One image of an archive.

    Attributes:
        references: Its tags, in full.
        digest: Hex SHA-256 of its configuration.
    """

    references: tuple[str, ...]
    digest: str


def read(archive: Path) -> list[Content]:
    """Return what a docker-archive tar holds.

    Raises:
        ClusterError: It is not such a tar, or an image in it has no tag.
    """
    try:
        with tarfile.open(archive) as tar:
            file = tar.extractfile("manifest.json")
            manifest = json.load(file) if file else []
    except (OSError, tarfile.TarError, KeyError, ValueError) as error:
        raise ClusterError(f"{archive} is not a docker-archive tar (`docker save` writes one): {error}") from error
    contents = []
    for image in manifest:
        if not image.get("RepoTags"):
            raise ClusterError(f"an image in {archive} has no tag; save it by its name, not by its id")
        contents.append(Content(tuple(image["RepoTags"]), Path(image["Config"]).name.removesuffix(".json")))
    return contents


def load(archive: Path, *, ctr: Callable[[Sequence[str]], str]) -> bool:
    """Import an archive on one node; return whether that was necessary.

    Args:
        archive: A docker-archive tar.
        ctr: Runs containerd's client with these arguments on the node and returns its output.
    """
    wanted = {reference: content.digest for content in read(archive) for reference in content.references}
    present = parse_labels(ctr(["images", "list"]))
    if all(present.get(reference) == digest for reference, digest in wanted.items()):
        return False
    ctr(["images", "import", str(archive)])
    for reference, digest in wanted.items():
        ctr(["images", "label", reference, f"{LABEL}={digest}"])
    return True


def parse_labels(listing: str) -> dict[str, str]:
    """Return the digest label of every image that has one, from the table that `ctr images list` prints."""
    labels = {}
    for line in listing.splitlines()[1:]:
        reference, *_, last = line.split()
        for label in last.split(","):
            name, _, value = label.partition("=")
            if name == LABEL:
                labels[reference] = value
    return labels


def pause() -> Path:
    """Return the archive of the image that holds a pod's namespaces, made on first use."""
    program = gobuild.binary("pause")
    key = cache.digest(program, parts.PAUSE_IMAGE, Path(__file__))
    folder = cache.build(
        "pause-image", key, lambda scratch: _write_pause(program, scratch / "pause.tar"), usually="1 s"
    )
    return folder / "pause.tar"


def _write_pause(program: Path, archive: Path) -> None:
    layer = _tar({"pause": program.read_bytes()}, mode=0o755)
    configuration = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": ["/pause"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created_by": "penstock e2e"}],
    }
    text = json.dumps(configuration).encode()
    name = f"{hashlib.sha256(text).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [parts.PAUSE_IMAGE], "Layers": ["layer.tar"]}]
    archive.write_bytes(
        _tar({name: text, "layer.tar": layer, "manifest.json": json.dumps(manifest).encode()}, mode=0o644)
    )


def _tar(files: dict[str, bytes], *, mode: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
