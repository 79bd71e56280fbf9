"""The base of every image: a small Debian with Python, made by debootstrap on this machine.

It stands in for `python:3.13-slim-bookworm` where no image registry can be reached. It holds what Python programs and
llama-server need at run time, plus `venv` for the build stage of the Dockerfile, and nothing that only people or
package managers need. Packages come from the mirror that this machine's apt already uses; neither its name nor any
certificate or proxy of this machine ends up in the image.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from e2e import cache
from e2e.cluster import debian as packages
from e2e.images import archive, debian
from e2e.images.errors import ImageBuildError
from e2e.images.text import last_line

SUITE = "bookworm"
PYTHON_VERSION = "3.11"
PACKAGES = ("ca-certificates", "libgomp1", "libnuma1", "libstdc++6", "python3", "python3-venv")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
TOOLS = {"debootstrap": "debootstrap", KEYRING: "debian-archive-keyring"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {"PATH": PATH, "LANG": "C.UTF-8"}

# Package management, translations and documentation: of no use in a container that is replaced instead of changed.
PURGED = (
    "apt",
    "debian-archive-keyring",
    "e2fsprogs",
    "gpgv",
    "libapt-pkg6.0",
    "libext2fs2",
    "libss2",
    "logsave",
    "mount",
    "sysvinit-utils",
)
REMOVED = (
    "boot",
    "dev/*",
    "etc/apt",
    "etc/machine-id",
    "etc/resolv.conf",
    "etc/hostname",
    "run/*",
    "tmp/*",
    "usr/lib/python3/dist-packages/*",
    "usr/lib/python3.*/idlelib",
    "usr/lib/python3.*/lib2to3",
    "usr/lib/python3.*/pydoc_data",
    "usr/lib/python3.*/test",
    "usr/lib/python3.*/turtledemo",
    "usr/lib/*-linux-gnu/gconv",
    "usr/lib/*-linux-gnu/perl-base",
    "usr/bin/perl*",
    "usr/share/bash-completion",
    "usr/share/bug",
    "usr/share/common-licenses",
    "usr/share/doc-base",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/perl*",
    "usr/share/pixmaps",
    "usr/share/zoneinfo",
    "var/cache/*",
    "var/lib/apt",
    "var/lib/dpkg",
    "var/log/*",
)


@dataclass(frozen=True)
class Base:
    """The base image: its layer for images that add to it, its archive for image builders."""

    key: str
    folder: Path

    @property
    def layer(self) -> Path:
        """The one layer, as a tar."""
        return self.folder / "layer.tar"

    @property
    def image(self) -> archive.Image:
        """The base as an image of its own."""
        return archive.Image(reference=f"localhost/python-base:{self.key[:12]}", archive=self.folder / "image.tar")


def key() -> str:
    """Return the hash that changes when the base has to be made anew."""
    return cache.digest(Path(__file__), archive.architecture())


def base() -> Base:
    """Return the base image, made on first use.

    Raises:
        ImageBuildError: This machine has no apt, is not run as root, or no mirror answers.
    """
    return Base(key=key(), folder=cache.build("image-base", key(), _make, usually="1 min"))


def _make(folder: Path) -> None:
    if os.geteuid() != 0:
        raise ImageBuildError("the base image is made by debootstrap, which works only as root; run this as root")
    debian.ensure(TOOLS)
    root = folder / "root"
    _debootstrap(root)
    _in_root(root, "dpkg", "--purge", "--force-all", *PURGED)
    _trim(root)
    _compile(root)
    made = Base(key=key(), folder=folder)
    archive.write_layer(made.layer, {"/": root}, keep_owners=True)
    archive.write_archive(
        made.image.archive, made.image.reference, [made.layer], archive.Config(environment=ENVIRONMENT)
    )
    shutil.rmtree(root)


def _debootstrap(root: Path) -> None:
    options = ["--variant=minbase", f"--include={','.join(PACKAGES)}", f"--keyring={KEYRING}"]
    done = _private(["debootstrap", *options, SUITE, str(root), *packages.mirror(SUITE)])
    if done.returncode != 0:
        raise ImageBuildError(f"debootstrap cannot make the base image: {last_line(done.stderr or done.stdout)}")


def _trim(root: Path) -> None:
    for pattern in REMOVED:
        for path in root.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    # Licences stay, as the packages' terms ask for; change logs and readmes go.
    for path in (root / "usr/share/doc").rglob("*"):
        if path.name != "copyright" and (path.is_symlink() or path.is_file()):
            path.unlink()


def _compile(root: Path) -> None:
    """Compile the standard library anew: the layer's one modification time would make Debian's compiled files stale."""
    for folder in root.rglob("__pycache__"):
        shutil.rmtree(folder)
    _in_root(
        root,
        "python3",
        "-m",
        "compileall",
        "-q",
        "--invalidation-mode",
        "unchecked-hash",
        f"/usr/lib/python{PYTHON_VERSION}",
    )


def _in_root(root: Path, *argv: str) -> None:
    done = _private(["chroot", str(root), *argv])
    if done.returncode != 0:
        raise ImageBuildError(f"`{' '.join(argv)}` failed in the base image: {last_line(done.stderr)}")


def _private(argv: list[str]) -> subprocess.CompletedProcess[str]:
    # A mount namespace of its own: what debootstrap mounts goes away with it, however it ends.
    environ = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{PATH}", "LC_ALL": "C.UTF-8"}
    return subprocess.run(["unshare", "--mount", *argv], env=environ, capture_output=True, text=True, check=False)
