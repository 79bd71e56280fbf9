"""The image of the process that holds a pod's namespaces: one static program (`e2e/cluster/go/pause`), nothing else."""

from __future__ import annotations

from pathlib import Path

from e2e import cache
from e2e.cluster import gobuild, parts
from e2e.images import archive

# The nodes' containerd is configured with this name before any image exists, so it carries no hash.
REFERENCE = parts.PAUSE_IMAGE
CONFIG = archive.Config(entrypoint=("/pause",))


def image() -> archive.Image:
    """Return the image, built on first use.

    Raises:
        ClusterError: Go is missing or too old, or the build failed.
    """
    program = gobuild.binary("pause")

    def make(folder: Path) -> None:
        archive.write_layer(folder / "layer.tar", {"/pause": program})
        archive.write_archive(folder / "image.tar", REFERENCE, [folder / "layer.tar"], CONFIG)

    key = cache.digest(program, Path(archive.__file__), repr(CONFIG))
    return archive.Image(REFERENCE, cache.build("image-pause", key, make, usually="1 s") / "image.tar")
