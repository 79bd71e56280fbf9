"""Debian packages that the image builds need on this machine.

Only what is missing is installed, and what is installed is said. Debian starts the services of a server package on
installation; a policy file forbids that for the moment of the installation and is removed afterwards.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from e2e import cache
from e2e.images.errors import ImageBuildError
from e2e.images.text import last_line

POLICY = Path("/usr/sbin/policy-rc.d")
# Another apt that runs at the moment is waited for.
INSTALL = ("-o", "DPkg::Lock::Timeout=300", "install", "--yes", "--no-install-recommends")
NO_STARTS = "#!/bin/sh\n# Exit code 101: the action is forbidden.\nexit 101\n"


def ensure(tools: Mapping[str, str]) -> None:
    """Install the Debian package of every command or file that is not on this machine.

    Args:
        tools: Command name, or absolute path of a file, to the name of the Debian package that brings it.

    Raises:
        ImageBuildError: apt is not on this machine, needs root, or fails.
    """
    packages = sorted({package for command, package in tools.items() if not find(command)})
    if not packages:
        return
    names = " ".join(packages)
    if not find("apt-get"):
        raise ImageBuildError(f"this machine has no apt; install {names} with its own package manager and run again")
    if os.geteuid() != 0:
        raise ImageBuildError(f"run `apt-get install {names}` as root once, and this command again")
    cache.say(f"installing Debian packages: {names}")
    with _no_service_starts():
        if not _install(packages):
            _run("apt-get", "update")  # the lists may be old or absent: one more try with fresh ones
            _run("apt-get", *INSTALL, *packages)


def find(command: str) -> str | None:
    """Return where a command is, those for administration included; an absolute path is itself looked for."""
    if command.startswith("/"):
        return command if Path(command).exists() else None
    return shutil.which(command, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _install(packages: list[str]) -> bool:
    done = subprocess.run(["apt-get", *INSTALL, *packages], env=_environ(), capture_output=True, check=False)
    return done.returncode == 0


def _run(*argv: str) -> None:
    done = subprocess.run(argv, env=_environ(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ImageBuildError(f"`{' '.join(argv)}` failed: {last_line(done.stderr)}")


def _environ() -> dict[str, str]:
    return os.environ | {"DEBIAN_FRONTEND": "noninteractive"}


@contextmanager
def _no_service_starts() -> Iterator[None]:
    if POLICY.exists():  # the machine has a policy of its own (images of Debian do): it stays
        yield
        return
    POLICY.write_text(NO_STARTS)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)
