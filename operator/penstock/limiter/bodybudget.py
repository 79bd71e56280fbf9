"""How much memory request bodies may take together, so that uploads never end the process."""

from __future__ import annotations


class BodyBudget:
    """Bytes of request bodies that may be held in memory at the same time.

    Attributes:
        limit_bytes: The most; a body that would pass it is refused as overload.
        held_bytes: What is held now.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    def take(self, size: int) -> bool:
        """Reserve `size` bytes; False when there is no room."""
        if self.held_bytes + size > self.limit_bytes:
            return False
        self.held_bytes += size
        return True

    def give(self, size: int) -> None:
        """Return what was taken."""
        self.held_bytes -= size
