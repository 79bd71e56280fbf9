"""Connections that are one too many: each is told so, and closed.

Every connection takes a descriptor and some memory before it has said a word, and another descriptor when its request
is served. When there are none left, nobody could be served, probes included. So the ports take a number of connections
that leaves room for their work. What comes above it gets 503 at once and is closed, so that it goes elsewhere.

To be read, an answer must not be overtaken by a reset, which the kernel sends when a connection is closed with a
request in it that nobody has read. So the connection *lingers* for a moment; when very many do, it is closed at once.
"""

from __future__ import annotations

import random
import resource
import socket
from collections.abc import Callable
from contextlib import suppress

from penstock.limiter.headers import own_response
from penstock.limiter.loop import Loop
from penstock.limiter.refusal import Dialect, Reason, Refused, error_object, refusal_headers
from penstock.limiter.selector import READ_BYTES, READABLE

ADMIN_CONNECTIONS_LIMIT = 64
RESERVED_DESCRIPTORS = 2 * ADMIN_CONNECTIONS_LIMIT
"""For listeners, probes, files, and connections to the engine that are kept for later."""

CONNECTION_BYTES = 16 * 1024
"""What a connection may cost before its request is complete, kernel included, with room to spare."""

MEMORY_SHARE = 0.25
LINGERING_LIMIT = 64
LINGER_SECONDS = 1.0

_REFUSED = Refused(Reason.OVERLOADED, "This replica has as many connections as it can hold.")
_BODY = error_object(_REFUSED, Dialect.OPENAI)


def connection_limit(*, descriptors: int, memory_bytes: int | None) -> int:
    """Return how many connections clients may have: each may need two descriptors, and all together a part of memory.

    Args:
        descriptors: How many the process may have open.
        memory_bytes: Limit of its memory; None without one.
    """
    limit = max(1, (descriptors - RESERVED_DESCRIPTORS) // 2)
    if memory_bytes is not None:
        limit = min(limit, max(1, int(memory_bytes * MEMORY_SHARE / CONNECTION_BYTES)))
    return limit


def open_files_limit() -> int:
    """Return how many descriptors this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft


class Overflow:
    """Turns connections away."""

    def __init__(self, loop: Loop, refused: Callable[[Refused], None]) -> None:
        """Begin with none; `refused` is told of each."""
        self._loop = loop
        self._refused = refused
        self._lingering: set[socket.socket] = set()

    def turn_away(self, sock: socket.socket) -> None:
        """Answer with 503 and close; the socket is non-blocking and belongs to nobody else."""
        self._refused(_REFUSED)
        fields = refusal_headers(_REFUSED, jitter=random.random())
        with suppress(OSError):
            sock.send(own_response(_REFUSED.status, fields, _BODY, close=True, head_only=False))
            sock.shutdown(socket.SHUT_WR)
        if len(self._lingering) >= LINGERING_LIMIT:
            sock.close()
            return
        self._lingering.add(sock)
        self._loop.direct.watch(sock.fileno(), READABLE, lambda _: self._drain(sock))
        self._loop.call_later(LINGER_SECONDS, self._close, sock)

    def _drain(self, sock: socket.socket) -> None:
        try:
            ended = not sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            ended = True
        if ended:
            self._close(sock)

    def _close(self, sock: socket.socket) -> None:
        if sock in self._lingering:
            self._lingering.discard(sock)
            self._loop.close_later(sock)
