"""The image that real vLLM runs in: the base with a PATH, and no vLLM.

vLLM for CPU is 2.9 GB; putting that into an image would copy it into every node. It is built on this machine under
the fixed folder `/opt/vllm` instead (`e2e/vllm`) and reaches the pod, read-only, through a PersistentVolume
mounted there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from e2e.images import archive, base, layered

HOME = "/opt/vllm"
# vLLM is started by its installed script, as in the official image.
CONFIG = archive.Config(
    environment=base.ENVIRONMENT
    | {"PATH": f"{HOME}/bin:{base.PATH}", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
)


def image() -> archive.Image:
    """Return the image, built on first use.

    Raises:
        ImageBuildError: The base cannot be made.
    """
    recipe = layered.Recipe(
        name="vllm-host",
        key=HOME,
        contents=_contents,
        config=CONFIG,
        usually="2 s",
        check=("python3", "-c", "import ctypes; ctypes.CDLL('libgomp.so.1')"),
    )
    return layered.image(recipe)


def _contents(scratch: Path) -> Mapping[str, Path]:
    mount_point = scratch / "vllm"
    mount_point.mkdir()
    return {HOME: mount_point}
