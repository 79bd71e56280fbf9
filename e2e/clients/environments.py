"""What the clients run in: Python environments with pinned packages, a compiled Go program, Node and curl as installed.

All openai versions have one module name, so each of the two has an environment of its own. Requirements are complete
lists, dependencies included: an SDK behaves as the HTTP library below it does.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from e2e import cache
from e2e.cluster import ClusterError, gobuild

PROGRAMS = Path(__file__).parent / "programs"
REQUIREMENTS = Path(__file__).parent / "requirements"
NEWEST, OLDER = "newest", "openai-before-2.52"
MINIMUM_NODE = 20
"""The first release with `AbortSignal.any`."""


class ClientsError(ClusterError):
    """A client cannot be had; the text says what to do."""


def python(name: str) -> Path:
    """Return the interpreter of an environment, made on first use.

    Args:
        name: Its list in `requirements/`.

    Raises:
        ClientsError: pip could not install it.
    """
    wanted = REQUIREMENTS / f"{name}.txt"

    def fill(folder: Path) -> None:
        _run([sys.executable, "-m", "venv", str(folder)])
        # run by path: the folder is renamed when it is complete, and pip's own script would name the old one
        pip = [str(folder / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        _run([*pip, "--no-deps", "--requirement", str(wanted)])

    folder = cache.build(f"clients-{name}", cache.digest(sys.version, wanted), fill, usually="30 s")
    return folder / "bin" / "python"


def version_of(package: str, requirements: str) -> str:
    """Return the version of a package that a list pins."""
    found = re.search(rf"(?m)^{re.escape(package)}==(\S+)$", (REQUIREMENTS / f"{requirements}.txt").read_text())
    if found is None:
        raise ClientsError(f"{requirements}.txt does not pin {package}")
    return found[1]


def go_program() -> Path:
    """Return the client on Go's net/http, compiled on first use.

    Raises:
        ClusterError: Go is missing or too old.
    """
    return gobuild.build("clients-go", gobuild.Program(str(PROGRAMS / "go"), ".", usually="10 s"))


def node() -> str:
    """Return Node's path.

    Raises:
        ClientsError: It is missing or too old.
    """
    path = _installed("node", f"Node {MINIMUM_NODE} or newer")
    version = _output([path, "--version"])
    if int(version.lstrip("v").partition(".")[0]) < MINIMUM_NODE:
        raise ClientsError(
            f"{path} is {version}, but Node {MINIMUM_NODE} or newer is needed; install it, run this again"
        )
    return path


def curl() -> str:
    """Return curl's path.

    Raises:
        ClientsError: It is missing.
    """
    return _installed("curl", "curl")


def versions() -> dict[str, str]:
    """Return which clients this is about, for people who read the table."""
    return {
        "openai": version_of("openai", NEWEST),
        "openai-old": version_of("openai", OLDER),
        "ogx": version_of("ogx_client", NEWEST),
        "anthropic": version_of("anthropic", NEWEST),
        "httpx": version_of("httpx", NEWEST),
        "curl": _output([curl(), "--version"]).split()[1],
        "node": _output([node(), "--version"]),
        "go": gobuild.find_go().version,
    }


def prepare() -> None:
    """Make everything that is missing, and say so at once where that cannot be done.

    Raises:
        ClusterError: A client cannot be had.
    """
    node()
    curl()
    go_program()
    for name in (NEWEST, OLDER):
        python(name)


def _installed(name: str, what: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise ClientsError(f"{name} is not on the PATH; install {what} and run this again: no client is left out")
    return path


def _output(argv: list[str]) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClientsError(f"`{' '.join(argv)}` failed:\n{done.stderr.strip()[-1000:]}\nIs PyPI reachable?")
