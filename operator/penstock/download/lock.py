"""One download at a time per folder of a volume, over all pods and nodes that share it.

It is a POSIX record lock (`fcntl`): the kernel gives it back the moment its holder ends, however it ends, and network
file systems carry it to other nodes (NFS through its lock manager, CephFS, GlusterFS; on some of them `flock` stays on
one node and succeeds for everybody). On a volume whose locks reach no other node, such as an object store mounted as a
folder, replicas on different nodes download at the same time: they write the same bytes to the same places, and nothing
is published before its checksum is right, so the cost is traffic. That they are the same bytes is only certain where
`revision` names a commit: a branch may move in between.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

POLL_SECONDS = 0.5
SAY_SECONDS = 15.0
MODE = 0o664


@contextmanager
def held(path: Path, *, holder: str, waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock while the block runs, waiting for it as long as it takes.

    Args:
        path: The lock's file; it stays when the lock is given back, since removing it would split the waiting.
        holder: Who this is, for those who wait.
        waiting: Called with the holder's name at once and every 15 seconds while another holds the lock.

    Raises:
        OSError: The file cannot be made, or the volume knows no locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
    try:
        said = -SAY_SECONDS
        while not _take(descriptor):
            if time.monotonic() - said >= SAY_SECONDS:
                waiting(path.read_text() or "another replica")
                said = time.monotonic()
            time.sleep(POLL_SECONDS)
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, holder.encode(), 0)
        yield
    finally:
        os.close(descriptor)  # gives the lock back


def _take(descriptor: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, as POSIX leaves open
        return False
    return True
