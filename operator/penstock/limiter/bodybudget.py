"""How much memory request bodies may take together, so that uploads never end the process.

A client that sends most of a large body and then hardly anything would hold its memory for as long as it likes, and a
few of them all there is. As long as nobody else needs the memory that is no harm. When somebody does, the bodies that
have not come on for longest are given up for it, if they came on by less than `STEP_BYTES` in `SLOW_SECONDS`.
"""

from __future__ import annotations

from typing import Protocol

STEP_BYTES = 64 * 1024
SLOW_SECONDS = 5.0  # 100 kbit/s: whoever is slower makes room for others


class Reader(Protocol):
    """Somebody who is reading a body."""

    def give_up_body(self) -> None:
        """Let go of the body, at once: its memory is needed, and it comes too slowly."""


class BodyBudget:
    """Bytes of request bodies that may be held in memory at the same time.

    Attributes:
        limit_bytes: The most; a body that would pass it is refused as overload.
        held_bytes: What is held now.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._readers: dict[Reader, float] = {}
        """When each last came on by a step; the one that has waited for longest comes first."""

    def take(self, size: int) -> bool:
        """Reserve `size` bytes; False when there is no room."""
        if self.held_bytes + size > self.limit_bytes:
            return False
        self.held_bytes += size
        return True

    def give(self, size: int) -> None:
        """Return what was taken."""
        self.held_bytes -= size

    def came_on(self, reader: Reader, now: float) -> None:
        """Note that a reader begins, or that its body came on by a step."""
        self._readers.pop(reader, None)
        self._readers[reader] = now

    def ended(self, reader: Reader) -> None:
        """Note that a reader reads no more; harmless for one that never began."""
        self._readers.pop(reader, None)

    def make_room(self, size: int, now: float, *, spared: Reader) -> None:
        """Let slow readers give up their bodies until `size` bytes fit, or none is slow."""
        while self.held_bytes + size > self.limit_bytes:
            slowest = next((reader for reader in self._readers if reader is not spared), None)
            if slowest is None or now - self._readers[slowest] < SLOW_SECONDS:
                return
            del self._readers[slowest]
            slowest.give_up_body()
