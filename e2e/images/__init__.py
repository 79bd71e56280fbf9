"""Container images for the tests, built from this repository and the package registries, with no image registry.

    from e2e import images
    images.penstock()    # Image(reference="localhost/penstock:…", archive=Path(…/image.tar))

Every image is built on first use and kept outside the repository under the hash of all that goes into it; asking for
one that exists costs the hashing. The archives are docker-archive tars, for `ctr images import` and `docker load`.
"""

from __future__ import annotations

from collections.abc import Callable

from e2e.images.archive import Image, Sizes
from e2e.images.errors import ImageBuildError
from e2e.images.fakevllm_image import image as fakevllm
from e2e.images.llamacpp_image import image as llamacpp
from e2e.images.measure import sizes
from e2e.images.pause_image import image as pause
from e2e.images.penstock_image import image as penstock
from e2e.images.vllm_host_image import image as vllm_host

__all__ = [
    "IMAGES",
    "Image",
    "ImageBuildError",
    "Sizes",
    "fakevllm",
    "llamacpp",
    "pause",
    "penstock",
    "sizes",
    "vllm_host",
]

IMAGES: dict[str, Callable[[], Image]] = {
    "penstock": penstock,
    "llamacpp": llamacpp,
    "fakevllm": fakevllm,
    "vllm-host": vllm_host,
    "pause": pause,
}
