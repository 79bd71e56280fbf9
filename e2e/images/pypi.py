"""Files that PyPI serves, fetched with pip under the machine's own settings and checked against a pinned hash.

pip is used as a download client only: `--no-deps`, one exact version, and a hash that this repository pins, so that a
changed file is an error and not a different image.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from e2e.images.archive import sha256 as sha256_of
from e2e.images.errors import ImageBuildError
from e2e.images.text import last_line


def fetch(requirement: str, *, sha256: str, folder: Path) -> Path:
    """Return the one file that pip downloads for `requirement` (`name==version`), placed in `folder`.

    Raises:
        ImageBuildError: pip cannot fetch it, or the file is not the pinned one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Build isolation stays on: pip asks a source distribution for its metadata even when it only downloads it, and that
    # needs the build requirements which the distribution names.
    argv = [str(python_with_pip(folder)), "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*argv, "--no-deps", "--dest", str(folder / "files"), requirement], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ImageBuildError(f"pip cannot download {requirement}: {last_line(done.stderr)}. Is PyPI reachable?")
    (file,) = (folder / "files").iterdir()
    found = sha256_of(file)
    if found != sha256:
        raise ImageBuildError(f"{file.name} has sha256 {found}, but {sha256} is pinned for {requirement}")
    return file


def python_with_pip(folder: Path) -> Path:
    """Return a Python that has pip: this one, or a virtual environment made in `folder`."""
    probe = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False)
    if probe.returncode == 0:
        return Path(sys.executable)
    venv.create(folder / "pip", with_pip=True)
    return folder / "pip" / "bin" / "python"
