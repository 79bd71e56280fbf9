"""Bytes that wait until a peer takes them."""

from __future__ import annotations

import socket
from collections import deque
from itertools import islice

PIECES_LIMIT = 64  # sent by one system call

Data = bytes | bytearray | memoryview


class Unsent:
    """A queue of pieces; nothing of it is copied.

    Attributes:
        size: How many bytes wait.
    """

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self.size = 0
        self._pieces: deque[Data] = deque()

    def __bool__(self) -> bool:
        return self.size > 0

    def add(self, data: Data) -> None:
        """Put a piece that is not empty at the end."""
        self._pieces.append(data)
        self.size += len(data)

    def clear(self) -> None:
        """Throw everything away."""
        self._pieces.clear()
        self.size = 0

    def send_by(self, sock: socket.socket) -> None:
        """Send as much as one system call takes.

        Raises:
            OSError: see `socket.sendmsg`; BlockingIOError when nothing can be sent now.
        """
        pieces = self._pieces
        sent = sock.sendmsg(islice(pieces, PIECES_LIMIT))
        self.size -= sent
        while pieces and sent >= len(pieces[0]):
            sent -= len(pieces.popleft())
        if sent:
            pieces[0] = memoryview(pieces[0])[sent:]
