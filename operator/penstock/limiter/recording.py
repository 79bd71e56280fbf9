"""What an answer has said so far, for everybody who follows it at a pace of their own.

Theory of operation. A recording holds pieces of payload, without any framing, numbered from the first. A reader has a
number: the piece it needs next. While the answer can be told again all pieces are kept. After that only those are kept
that some reader still needs, and no more than `BEHIND_LIMIT_BYTES`: whoever needs an older one has fallen behind.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

BEHIND_LIMIT_BYTES = 256 * 1024
READ_LIMIT_BYTES = 32 * 1024


class Recording:
    """See the module's docstring.

    Attributes:
        whole: Whether it is kept from the beginning.
        size: Bytes that are held.
        first: Number of the first piece that is held.
    """

    __slots__ = ("_pieces", "first", "size", "whole")

    def __init__(self, *, whole: bool) -> None:
        self.whole = whole
        self.size = 0
        self.first = 0
        self._pieces: deque[bytes] = deque()

    @property
    def end(self) -> int:
        """Number of the piece that will be said next."""
        return self.first + len(self._pieces)

    def add(self, piece: bytes) -> None:
        """Add what was said."""
        self._pieces.append(piece)
        self.size += len(piece)

    def read(self, number: int) -> tuple[bytes, int]:
        """Return what was said from a piece on, up to some size, and the number of the next piece."""
        at = number - self.first
        if at == len(self._pieces) - 1:
            return self._pieces[at], number + 1
        taken: list[bytes] = []
        size = 0
        for piece in islice(self._pieces, at, None):
            taken.append(piece)
            size += len(piece)
            if size >= READ_LIMIT_BYTES:
                break
        return b"".join(taken), number + len(taken)

    def forget_before(self, number: int) -> None:
        """Let go of what no reader needs, and of what is too old to be kept for anybody."""
        self.whole = False
        while self._pieces and (self.first < number or self.size > BEHIND_LIMIT_BYTES):
            self.size -= len(self._pieces.popleft())
            self.first += 1
