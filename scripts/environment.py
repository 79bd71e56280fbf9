"""The Python environment of every target: where it is, and how it is made.

It holds dependencies only, never the project itself (the source is found through PYTHONPATH), so one environment serves
every checkout. Its folder is named after what goes in: another dependency is another folder, and nothing is upgraded
in place. Standard library only: this runs before anything is installed.

Usage: environment.py path | create
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
CONSTRAINTS = REPOSITORY / "constraints.txt"


def cache_root() -> Path:
    """Return the folder for everything built; the same rule as `e2e/cache.py`."""
    root = os.environ.get("PENSTOCK_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "penstock"
    return Path(root).expanduser().resolve()


def extras() -> dict[str, list[str]]:
    """Return what the processes need, by extra, as pyproject.toml says."""
    found: dict[str, list[str]] = _project()["project"]["optional-dependencies"]
    return found


def requirements() -> list[str]:
    """Return every requirement of the extras and dependency groups in pyproject.toml, but a C compiler.

    Most machines have one; the others get theirs when something is compiled (`native.py`).
    """
    groups = [lines for name, lines in _project()["dependency-groups"].items() if name != "native"]
    return [one for lines in (*extras().values(), *groups) for one in lines]


def _project() -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - not there before Python 3.11, which main() has checked by now

    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def path() -> Path:
    """Return the environment's folder, whether it exists or not."""
    parts = [sys.version, CONSTRAINTS.read_text(), *requirements()]
    return cache_root() / "venv" / hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def create(folder: Path) -> None:
    """Make the environment, or leave a complete one alone."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / ".lock").open("w") as lock:  # of two commands that start together, the second waits
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _fill(folder)


def _fill(folder: Path) -> None:
    say(f"creating the Python environment (usually 1 min, once; kept in {folder})")
    started = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    _ensure_venv_module()
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--constraint", str(CONSTRAINTS), "pip", *requirements()], check=True)
    (folder / "complete").touch()
    say(f"created the Python environment in {time.monotonic() - started:.0f} s")


def _ensure_venv_module() -> None:
    try:
        import ensurepip  # noqa: F401, PLC0415 - Debian ships it apart from python3
    except ImportError:
        if not shutil.which("apt-get"):
            sys.exit("penstock: this Python has no venv module; install it (Debian: python3-venv) and try again")
        say("installing python3-venv")
        for words in (["update"], ["install", "-y", "--no-install-recommends", "python3-venv"]):
            variables = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            subprocess.run(["apt-get", "-qq", *words], env=variables, stdin=subprocess.DEVNULL, check=True)


def say(message: str) -> None:
    """Show progress on standard error."""
    print(f"[penstock] {message}", file=sys.stderr, flush=True)


def main() -> None:
    """Run one of the two commands."""
    if sys.version_info < (3, 11):  # noqa: UP036 - the one place that says so in a sentence
        sys.exit(f"penstock: needs Python 3.11 or newer, this is {sys.version.split()[0]} ({sys.executable})")
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if any(character.isspace() or character == ":" for character in str(cache_root())):
        sys.exit(
            f"penstock: make cannot work in {cache_root()}: set PENSTOCK_CACHE to a path without blanks and colons"
        )
    if command == "path":
        print(path())
    elif command == "create":
        try:
            create(path())
        except OSError as error:
            sys.exit(
                f"penstock: cannot write to {cache_root()} ({error.strerror}): set PENSTOCK_CACHE to another folder"
            )
        except subprocess.CalledProcessError as error:
            sys.exit(f"penstock: `{' '.join(error.cmd[:6])} …` failed with exit status {error.returncode}; see above")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
