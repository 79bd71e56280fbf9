"""Dockerfile builds without a container engine: buildah with its `chroot` isolation and a storage of its own.

The storage lies in the cache folder, so a container engine of this machine sees nothing of it and loses nothing. pip
settings, certificates and proxies of this machine reach the build as secrets and as the standard proxy variables; both
exist only while a `RUN` line runs.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from e2e import cache
from e2e.images import archive, debian
from e2e.images.errors import ImageBuildError
from e2e.images.text import last_lines

TOOLS = {"buildah": "buildah"}
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# The settings of pip that say how to reach an index; all others concern this machine's own environments.
PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "proxy", "default-timeout", "timeout", "retries")


def build(image: archive.Image, *, context: Path, arguments: Mapping[str, str], base: archive.Image) -> None:
    """Build the Dockerfile in `context` and write `image.archive`.

    Layers of earlier builds are reused; older builds of the same image are forgotten.

    Args:
        image: The reference to give the result and where to write it.
        context: Folder with the Dockerfile and what it copies.
        arguments: Build arguments.
        base: The image that the Dockerfile builds on, loaded into the storage first.

    Raises:
        ImageBuildError: buildah is not to be had on this machine, or a line of the Dockerfile fails.
    """
    debian.ensure(TOOLS)
    if not _succeeds("inspect", "--type", "image", base.reference):
        _run("pull", "--quiet", f"docker-archive:{base.archive}")
    with tempfile.TemporaryDirectory(prefix="penstock-build-") as scratch:
        options = ["--isolation", "chroot", "--layers", "--pull-never", "--timestamp", str(archive.MODIFIED_SECONDS)]
        options += [f"--build-arg={name}={value}" for name, value in arguments.items()]
        options += [f"--secret=id={name},src={path}" for name, path in _secrets(Path(scratch)).items()]
        _run("bud", *options, "--tag", image.reference, str(context))
    _run("push", "--quiet", image.reference, f"docker-archive:{image.archive}:{image.reference}")
    for older in _others(image.reference):
        _run("rmi", older)


def _others(reference: str) -> list[str]:
    """Return the references in the storage that are older builds of the same image."""
    name = reference.rpartition(":")[0]
    listed = _run("images", "--format", "{{.Name}}:{{.Tag}}").splitlines()
    return [other for other in listed if other.rpartition(":")[0] == name and other != reference]


def _secrets(folder: Path) -> dict[str, Path]:
    settings = _pip_settings()
    secrets = {}
    if CERTIFICATES.exists():
        settings["cert"] = "/run/secrets/ca"
        secrets["ca"] = CERTIFICATES
    secrets["pip"] = folder / "pip.conf"
    secrets["pip"].write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()))
    return secrets


def _pip_settings() -> dict[str, str]:
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    return parse_pip_settings(listed.stdout)


def parse_pip_settings(text: str) -> dict[str, str]:
    """Return what `pip config list` says about reaching an index; the environment wins over files, as in pip."""
    settings = {}
    for line in sorted(text.splitlines(), key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        option = name.rpartition(".")[2]
        if option in PIP_SETTINGS:
            settings[option] = " ".join(shlex.split(value)).replace("\\n", " ")
    return settings


def storage() -> Path:
    """Return the folder of the images and layers that buildah keeps."""
    return cache.cache_root() / "buildah"


def _command(*argv: str) -> list[str]:
    """Return the command line; in a mount namespace of its own, else buildah leaves its storage mounted on itself."""
    root = storage()
    return ["unshare", "--mount", "buildah", "--root", str(root / "root"), "--runroot", str(root / "run"), *argv]


def _succeeds(*argv: str) -> bool:
    return subprocess.run(_command(*argv), capture_output=True, check=False).returncode == 0


def _run(*argv: str) -> str:
    done = subprocess.run(_command(*argv), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ImageBuildError(f"buildah {argv[0]} failed:\n{last_lines(done.stderr)}")
    return done.stdout
