"""One measurement at a time: two on the same cores would measure each other."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from e2e import cache


@contextmanager
def only_one() -> Iterator[None]:
    """Wait until no other measurement runs on this machine, and keep others waiting."""
    path = cache.cache_root() / "bench.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            cache.say("waiting: another measurement is running on this machine")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
