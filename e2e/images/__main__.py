"""`python -m e2e.images NAME...`: build images and print reference, archive and sizes, one line each."""

from __future__ import annotations

import argparse

from e2e import command, images
from e2e.images import base

MEGABYTE = 1_000_000


def main(argv: list[str] | None = None) -> int:
    """Build the named images, all by default, and return 0.

    Raises:
        ImageBuildError, ClusterError: An image cannot be built here.
    """
    parser = argparse.ArgumentParser(prog="python -m e2e.images", description="Build the images of the tests.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(images.IMAGES)} (default: all)")
    parser.add_argument("--reference", action="store_true", help="print the references only")
    options = parser.parse_args(argv)
    unknown = [name for name in options.names if name not in images.IMAGES]
    if unknown:
        parser.error(f"there is no image {unknown[0]}; there is: {', '.join(images.IMAGES)}")
    for name in options.names or images.IMAGES:
        image = images.IMAGES[name]()
        if options.reference:
            print(image.reference)
            continue
        size = images.sizes(image)
        below = "" if name == "pause" else f", on {base.SUITE} with Python {base.PYTHON_VERSION}"
        print(
            f"{image.reference}  {size.compressed / MEGABYTE:.0f} MB compressed, {size.unpacked / MEGABYTE:.0f} MB "
            f"unpacked{below}  {image.archive}"
        )
    return 0


if __name__ == "__main__":
    command.run(main)
