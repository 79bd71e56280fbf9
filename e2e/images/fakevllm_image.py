"""The image of the stand-in for vLLM (`e2e/fakevllm`): a `vllm` on the PATH that takes vLLM's own command line,
and the made-up model at the place where real vLLM has it.

Its packages are installed from here for the base's Python (`pip install --target` with the platform named), in the
versions that the tests use, so nothing has to run inside the image while it is built.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from e2e import cache
from e2e.images import archive, base, layered, pypi
from e2e.images.errors import ImageBuildError
from e2e.images.repository import REPOSITORY
from e2e.images.text import last_line

SOURCES = (REPOSITORY / "e2e" / "__init__.py", REPOSITORY / "e2e" / "fakevllm")
# What constraints.txt pins, it pins here too.
REQUIREMENTS = ("httptools", "prometheus-client", "pydantic", "uvicorn", "uvloop")
CONSTRAINTS = REPOSITORY / "constraints.txt"
HOME = "/opt/fakevllm"
# Where real vLLM has its model too (`e2e/vllm`), so one object describes both.
MODEL_PATH = "/opt/vllm/model"
LAUNCHER = f"""#!/usr/bin/python3
import sys

sys.path[0] = "{HOME}"
from e2e.fakevllm.cli import main

main()
"""
CONFIG = archive.Config(environment=base.ENVIRONMENT | {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"})
PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")


def image() -> archive.Image:
    """Return the image, built on first use.

    Raises:
        ImageBuildError: PyPI is not reachable, or the program does not start in the finished image.
    """
    return layered.image(
        layered.Recipe(
            name="fakevllm",
            key=cache.digest(*SOURCES, _packages_key(), LAUNCHER, MODEL_PATH),
            contents=_contents,
            config=CONFIG,
            usually="5 s",
            check=("vllm", "serve", "--help"),
        )
    )


def _packages_key() -> str:
    return cache.digest(*REQUIREMENTS, CONSTRAINTS, base.PYTHON_VERSION, platform.machine(), Path(__file__))


def _packages() -> Path:
    return cache.build("fakevllm-packages", _packages_key(), _install, usually="10 s")


def _install(folder: Path) -> None:
    target = ["--target", str(folder), "--python-version", base.PYTHON_VERSION, "--implementation", "cp"]
    for name in PLATFORMS:
        target += ["--platform", f"{name}_{platform.machine()}"]
    argv = [str(pypi.python_with_pip(folder.parent)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--only-binary", ":all:", "--no-compile", "--constraint", str(CONSTRAINTS)]
    done = subprocess.run([*argv, *options, *target, *REQUIREMENTS], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ImageBuildError(f"pip cannot install the packages of the vLLM stand-in: {last_line(done.stderr)}")


def _contents(scratch: Path) -> Mapping[str, Path]:
    launcher = scratch / "vllm"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    model = scratch / "model"
    subprocess.run([sys.executable, "-m", "e2e.fakevllm.model", str(model)], cwd=REPOSITORY, check=True)
    return {
        MODEL_PATH: model,
        "/usr/local/bin/vllm": launcher,
        HOME: _packages(),
        **{f"{HOME}/{source.relative_to(REPOSITORY)}": source for source in SOURCES},
    }
