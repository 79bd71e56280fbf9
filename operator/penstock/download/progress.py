"""How far a download is, as a line now and then: logs keep lines, and nobody watches a bar in them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERVAL_SECONDS = 10.0
GIGABYTE = 1_000_000_000
MEGABYTE = 1_000_000

Say = Callable[[str], None]


class Progress:
    """Counts the bytes of one download over all its threads."""

    def __init__(self, *, total_bytes: int, present_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.received_bytes = 0
        self._present_bytes = present_bytes
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """Count bytes that have been written; a negative number takes them back."""
        with self._lock:
            self._present_bytes += count
            self.received_bytes += max(count, 0)

    def line(self, *, bytes_per_second: float) -> str:
        """Return the state as a line."""
        done = self._present_bytes
        percent = 100 * done // self.total_bytes if self.total_bytes else 100
        text = f"{size(done)} of {size(self.total_bytes)} ({percent} %), {size(bytes_per_second)}/s"
        if bytes_per_second > 0:
            text += f", about {max(self.total_bytes - done, 0) / bytes_per_second:.0f} s to go"
        return text

    @contextmanager
    def told(self, say: Say) -> Iterator[None]:
        """Say a line every 10 seconds while the block runs."""
        ended = threading.Event()

        def tell() -> None:
            before, since = self.received_bytes, time.monotonic()
            while not ended.wait(INTERVAL_SECONDS):
                now = time.monotonic()
                say(self.line(bytes_per_second=(self.received_bytes - before) / (now - since)))
                before, since = self.received_bytes, now

        teller = threading.Thread(target=tell, name="progress", daemon=True)
        teller.start()
        try:
            yield
        finally:
            ended.set()
            teller.join()


def size(count: float) -> str:
    """Return a number of bytes for people."""
    return f"{count / GIGABYTE:.1f} GB" if count >= GIGABYTE else f"{count / MEGABYTE:.1f} MB"
