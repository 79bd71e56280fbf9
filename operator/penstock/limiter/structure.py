"""How deep a body nests and how much memory its values can take, seen without reading them.

Both are told by the brackets and commas outside of its texts. The body is looked at by the slice: what is taken apart
into pieces for a look takes more memory than it has bytes, and a client chooses how many pieces there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Final

SLICE_BYTES: Final = 64 * 1024

_OTHERS: Final = bytes(set(range(256)) - set(b'[]{},"'))
_STEPS: Final = [(byte in b"[{") - (byte in b"]}") for byte in range(256)]


def slices(body: bytes | memoryview) -> Iterator[bytes]:
    """Return a JSON text in pieces of about `SLICE_BYTES`, none of which ends within an escape's first characters."""
    begin = 0
    while begin < len(body):
        end = begin + SLICE_BYTES
        piece = bytes(body[begin:end])
        while end < len(body) and _ends_within_escape(piece):
            end += 1
            piece = bytes(body[begin:end])
        yield piece
        begin = end


def _ends_within_escape(piece: bytes) -> bool:
    before = piece.removesuffix(b"u")  # what the digits behind it mean is told by the first
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 1


class Shape:
    """What was seen so far.

    Attributes:
        depth: Of the deepest value.
        commas, lists, objects: How many there are.
    """

    __slots__ = ("_inside", "_level", "commas", "depth", "lists", "objects")

    def __init__(self) -> None:
        self.commas = self.depth = self.lists = self.objects = 0
        self._level = 0
        self._inside = 0  # 1 within a text

    def see(self, piece: bytes) -> None:
        """Take the next slice."""
        if b"\\" in piece:  # a quote that is still there after this begins or ends a text
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.translate(None, _OTHERS).split(b'"')
        outside = b"".join(parts[self._inside :: 2])
        self._inside ^= (len(parts) - 1) & 1
        self.commas += outside.count(b",")
        self.lists += outside.count(b"[")
        self.objects += outside.count(b"{")
        levels = list(accumulate(map(_STEPS.__getitem__, outside.replace(b",", b"")), initial=self._level))
        self._level = levels[-1]
        self.depth = max(self.depth, *levels)
