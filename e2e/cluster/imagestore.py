"""Images on a node: docker-archive tars in, straight into the node's containerd, with no registry anywhere.

A tag alone does not tell what is behind it, so the digest of the image's configuration, which names its contents, is
kept as a label on the node. An archive is skipped only when tag and digest are both there.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError

LABEL = "penstock.dev/configuration"


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


def names(archive: Path) -> str:
    """Return the tags of the images in a docker-archive tar, for people."""
    return ", ".join(reference for content in read(archive) for reference in content.references)


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
