"""Things that take long to build, kept outside the repository under the hash of what they are made from.

`build()` is the only way in: the recipe fills a scratch folder, and the folder gets its final name by one rename, so a
build that was interrupted leaves nothing that looks finished. A lock per name lets two commands run side by side:
the second waits, says so, and then finds the result.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LONG_BUILD_SECONDS = 5


def cache_root() -> Path:
    """Return the folder for everything built: `$PENSTOCK_CACHE`, else `~/.cache/penstock`."""
    root = os.environ.get("PENSTOCK_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "penstock"
    return Path(root).expanduser().resolve()


def digest(*parts: str | bytes | Path) -> str:
    """Return 16 hex digits that change when any part does.

    Args:
        parts: Text and bytes count as themselves; a `Path` counts as the contents of that file, or of every file below
            that folder with its relative name (what is compiled left out).
    """
    total = hashlib.sha256()
    for part in parts:
        for chunk in _chunks(part):
            total.update(len(chunk).to_bytes(8, "big"))
            total.update(chunk)
    return total.hexdigest()[:16]


def _chunks(part: str | bytes | Path) -> Iterator[bytes]:
    if isinstance(part, str):
        yield part.encode()
    elif isinstance(part, bytes):
        yield part
    elif part.is_dir():
        for path in sorted(part.rglob("*")):
            if path.is_file() and not path.name.endswith(".so.1") and "__pycache__" not in path.parts:
                yield str(path.relative_to(part)).encode()
                yield path.read_bytes()
    else:
        yield part.read_bytes()


def build(name: str, key: str, recipe: Callable[[Path], None], *, usually: str) -> Path:
    """Return the folder `cache_root()/name/key`, made by `recipe` if it is not there yet.

    Args:
        name: What it is, also the folder's parent: `kubernetes`, `engine-llamacpp`.
        key: Hash of everything the result depends on, see `digest`.
        recipe: Called with an empty folder that it fills; any exception leaves the cache as it was.
        usually: How long it takes on a small machine, for people: `5 min`.
    """
    folder = cache_root() / name / key
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.parent / ".lock", name):
        if folder.is_dir():
            return folder
        say(f"building {name} (usually {usually}, once; kept in {folder})")
        started = time.monotonic()
        scratch = folder.parent / f".{key}.{os.getpid()}"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            recipe(scratch)
            scratch.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        say(f"built {name} in {duration(time.monotonic() - started)}")
    return folder


@contextmanager
def _lock(path: Path, name: str) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting: another command is building {name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def duration(seconds: float) -> str:
    """Return seconds as people say them: `4.2 s`, `3 min 07 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"


def say(message: str) -> None:
    """Show progress on standard error, so that standard output stays for results."""
    print(f"[penstock] {message}", file=sys.stderr, flush=True)
