"""The Penstock image, built from the repository's own Dockerfile on the local base, and its size."""

from __future__ import annotations

import shutil
from pathlib import Path

from e2e import cache
from e2e.images import archive, base, buildah
from e2e.images.repository import REPOSITORY

# All that the Dockerfile copies, and what decides how.
SOURCES = (
    ".dockerignore", "Dockerfile", "LICENSE", "README.md", "constraints.txt", "hatch_build.py", "operator",
    "pyproject.toml", "scripts/native.py",
)  # fmt: skip
KEPT_BUILDS = 3


def image() -> archive.Image:
    """Return the image of the sources as they are now; its tag is the hash of all that goes in.

    Raises:
        ImageBuildError: The base cannot be made, or a line of the Dockerfile fails.
    """
    key = source_key(REPOSITORY)
    reference = f"localhost/penstock:{key[:12]}"

    def make(folder: Path) -> None:
        below = base.base().image
        built = archive.Image(reference, folder / "image.tar")
        buildah.build(built, context=REPOSITORY, arguments={"PYTHON_IMAGE": below.reference}, base=below)

    folder = cache.build("image-penstock", key, make, usually="1 min, 10 s after a change of the code")
    _forget_old(folder)
    return archive.Image(reference, folder / "image.tar")


def source_key(repository: Path) -> str:
    """Return the hash of the files that go into the image, and of the base below them."""
    parts: list[str | Path] = [base.key()]
    for name in SOURCES:
        parts += [name, repository / name]
    return cache.digest(*parts)


def _forget_old(current: Path) -> None:
    """Remove the archives of earlier states of the code, but for the last few, which another command may be loading."""
    builds = [path for path in current.parent.iterdir() if path.is_dir() and not path.name.startswith(".")]
    builds.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in builds[KEPT_BUILDS:]:
        if path != current:
            shutil.rmtree(path, ignore_errors=True)
