"""Sizes of images, kept beside them: to know what a download takes, every layer has to be compressed once."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from e2e import cache
from e2e.images import archive


def sizes(image: archive.Image) -> archive.Sizes:
    """Return an image's compressed and unpacked size in bytes, the base included."""

    def measure(folder: Path) -> None:
        (folder / "sizes.json").write_text(json.dumps(asdict(archive.sizes(image.archive))))

    # The archive's folder carries the hash of its contents.
    folder = cache.build("image-sizes", cache.digest(str(image.archive)), measure, usually="10 s")
    return archive.Sizes(**json.loads((folder / "sizes.json").read_text()))
