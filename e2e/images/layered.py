"""Images of the base plus one layer of files: no container engine takes part, and equal files give equal bytes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e import cache
from e2e.images import archive, base, container
from e2e.images.archive import Config, Image
from e2e.images.errors import ImageBuildError
from e2e.images.text import last_line


@dataclass(frozen=True)
class Recipe:
    """How one image is made.

    Attributes:
        name: Name of the image, without registry and tag.
        key: Hash of everything the layer depends on.
        contents: Given an empty scratch folder, returns path in the image to file or folder on this machine.
        config: What a container of the image runs.
        usually: How long a build takes, for people.
        check: A command that has to succeed in the finished image, run on a read-only root by a user without rights.
    """

    name: str
    key: str
    contents: Callable[[Path], Mapping[str, Path]]
    config: Config
    usually: str
    check: tuple[str, ...]


def image(recipe: Recipe) -> Image:
    """Return the image, built on first use.

    Raises:
        ImageBuildError: The base or the contents cannot be made, or the finished image does not run its check.
    """
    key = cache.digest(base.key(), Path(archive.__file__), Path(__file__), repr(recipe.config), recipe.key)
    reference = f"localhost/{recipe.name}:{key[:12]}"

    def make(folder: Path) -> None:
        below = base.base().layer
        scratch = folder / "scratch"
        scratch.mkdir()
        layer = folder / "layer.tar"
        archive.write_layer(layer, recipe.contents(scratch))
        built = archive.write_archive(folder / "image.tar", reference, [below, layer], recipe.config)
        shutil.rmtree(scratch)
        layer.unlink()
        with container.unpacked(built) as trial:
            done = trial.execute(*recipe.check)
        if done.returncode != 0:
            told = last_line(done.stderr or done.stdout)
            raise ImageBuildError(f"`{' '.join(recipe.check)}` fails in the finished image {recipe.name}: {told}")

    folder = cache.build(f"image-{recipe.name}", key, make, usually=recipe.usually)
    return Image(reference=reference, archive=folder / "image.tar")
