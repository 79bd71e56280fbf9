"""Taking connections on a port.

Connections are accepted in batches, and inherit the listening socket's options. When the process or the machine has no
file descriptor left, the waiting connections stay in the kernel's queue: accepting pauses, because the event loop would
report them without end, and goes on when other connections may have ended.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from penstock.limiter import tcp
from penstock.limiter.loop import Loop
from penstock.limiter.selector import READABLE

logger = logging.getLogger(__name__)

BACKLOG = 2048
BATCH_LIMIT = 16
"""Then those who are there are heard: in a flood the admin port must not end a probe before it was read."""

PAUSE_SECONDS = 1.0

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NO_IPV6 = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})


def bind(host: str | None, port: int, *, question_seconds: int = 15) -> list[socket.socket]:
    """Return listening sockets on an address, or on all addresses of IPv4 and, where there is it, IPv6.

    Args:
        host: The address; None for all.
        port: On each of them.
        question_seconds: See `tcp.ask_when_silent`.

    Raises:
        OSError: the port is taken, or there is no such address.
    """
    if host is not None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sockets = [socket.create_server((host, port), family=family, backlog=BACKLOG)]
    else:
        sockets = [socket.create_server(("", port), backlog=BACKLOG)]
        try:
            sockets.append(socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG))
        except OSError as error:
            if error.errno not in _NO_IPV6:
                sockets[0].close()
                raise
    for sock in sockets:
        sock.setblocking(False)
        tcp.prepare(sock)
        tcp.ask_when_silent(sock, question_seconds)
    return sockets


class Listener:
    """Hands the connections of one listening socket to `accepted`."""

    def __init__(self, loop: Loop, sock: socket.socket, accepted: Callable[[socket.socket], object]) -> None:
        self._loop = loop
        self._sock = sock
        self._accepted = accepted
        self._complained = False
        self._pause: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Accept no more."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.close_later(self._sock)

    def _listen(self) -> None:
        self._pause = None
        self._loop.direct.watch(self._sock.fileno(), READABLE, self._accept)

    def _accept(self, _events: int) -> None:
        for _ in range(BATCH_LIMIT):
            try:
                sock, _ = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._rest(error)
                    return
                continue  # that one connection broke before it was accepted
            self._complained = False
            sock.setblocking(False)
            self._accepted(sock)

    def _rest(self, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            logger.error("no connection can be accepted for now, more of them wait error=%r", str(error))
        self._loop.direct.unwatch(self._sock.fileno())
        self._pause = self._loop.call_later(PAUSE_SECONDS, self._listen)
