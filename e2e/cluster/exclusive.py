"""One command at a time may start or remove a cluster, and a command that is stopped cleans up first."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


@contextmanager
def lock(root: Path) -> Iterator[Path]:
    """Hold the lock of the cluster with that folder; yield the lock's file, which the holder may remove."""
    path = root.with_suffix(".lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Whoever had it before may have removed the file: then this lock is on nothing, and a new one is due.
            if _is_same_file(path, file.fileno()):
                yield path
                return


def _is_same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


@contextmanager
def sigterm_as_exit() -> Iterator[None]:
    """Let SIGTERM unwind the stack as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    previous = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
