"""Build the limiter's lanes: lanes.c -> liblanes.so.1, beside it. It uses nothing but the C library.

The compiler is $CC, or else what the machine has; or else a C compiler that comes as a Python package (ziglang; see
pyproject.toml), which this installs into the Python that runs it when asked to. Standard library only: the package's
build (`hatch_build.py`) uses this, too.

Usage: native.py [--install-compiler]
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE = REPOSITORY / "operator" / "penstock" / "limiter" / "lanes.c"
LIBRARY = SOURCE.with_name("liblanes.so.1")
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-std=gnu11", "-O2", "-g0", "-Wall", "-Wextra", "-fPIC", "-shared", "-fstack-protector-strong", "-Wl,-z,now")


class NativeBuildError(Exception):
    """The library cannot be built; the message says why."""


def compiler() -> list[str] | None:
    """Return the command of a C compiler; None when there is none."""
    if named := shlex.split(os.environ.get("CC", "")):
        return named
    if found := next(filter(shutil.which, COMPILERS), None):
        return [found]
    # Without the flag it compiles for the very machine that it runs on, and the library would end elsewhere.
    return [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"] if find_spec("ziglang") else None


def build(target: Path) -> None:
    """Compile the library into `target`, in one step that nobody sees half of.

    Raises:
        NativeBuildError: there is no compiler, or it fails.
    """
    command = compiler()
    if command is None:
        raise NativeBuildError("there is no C compiler; install one (Debian: gcc and libc6-dev), or set CC")
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".lanes-") as folder:
            output = Path(folder) / target.name
            _compile([*command, *FLAGS, str(SOURCE), "-o", str(output)])
            output.replace(target)
    except OSError as error:
        raise NativeBuildError(f"cannot write to {target.parent}: {error.strerror}") from None


def _compile(command: list[str]) -> None:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise NativeBuildError(f"cannot run {command[0]}: {error.strerror}") from None
    if done.returncode or not Path(command[-1]).exists():
        raise NativeBuildError(f"`{shlex.join(command[:3])} …` failed:\n{done.stderr.strip()}")


def requirement() -> str:
    """Return the Python package that brings a compiler, as pyproject.toml says."""
    import tomllib  # noqa: PLC0415 - not there before Python 3.11

    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    return str(project["dependency-groups"]["native"][0])


def main() -> None:
    """Build beside the source."""
    if "--install-compiler" in sys.argv and compiler() is None:
        print("[penstock] no C compiler here: installing one into the Python environment", file=sys.stderr, flush=True)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", requirement()]
        if subprocess.run(pip, check=False).returncode:
            sys.exit(f"penstock: cannot install {requirement()}; install a C compiler (Debian: gcc and libc6-dev)")
    try:
        build(LIBRARY)
    except NativeBuildError as error:
        sys.exit(f"penstock: {error}")


if __name__ == "__main__":
    main()
