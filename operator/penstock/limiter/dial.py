"""Opening a connection.

A connection to the same host is there as soon as it was asked for, so the answer to asking twice is mostly "done": no
event, no timer, no task. Otherwise the socket is watched until it is writable, and asked again: only `connect` itself
tells for certain whether it has come about.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable

from penstock.limiter import tcp
from penstock.limiter.loop import Loop
from penstock.limiter.selector import WRITABLE

_UNDER_WAY = frozenset({errno.EINPROGRESS, errno.EALREADY})


class Dial:
    """One attempt; calls `opened` or `failed` once, perhaps before the constructor returns, unless it is cancelled."""

    __slots__ = ("_address", "_failed", "_loop", "_opened", "_sock", "_timer")

    def __init__(
        self,
        loop: Loop,
        address: tuple[str, int],
        *,
        seconds: float,
        opened: Callable[[socket.socket], object],
        failed: Callable[[OSError], object],
    ) -> None:
        """Begin.

        Args:
            loop: Where to wait.
            address: IPv4 or IPv6 address and port; names are not looked up.
            seconds: How long to wait before it has failed with a TimeoutError.
            opened: Gets the connected socket.
            failed: Gets the error.
        """
        self._loop = loop
        self._address = address
        self._opened = opened
        self._failed = failed
        self._sock: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            self._sock = sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            failed(error)
            return
        tcp.prepare(sock)
        sock.connect_ex(address)
        if not self._is_decided():
            loop.direct.watch(sock.fileno(), WRITABLE, lambda _events: self._is_decided())
            self._timer = loop.call_later(seconds, self._fail, TimeoutError(f"no connection within {seconds:g} s"))

    def cancel(self) -> None:
        """Give up; harmless when it is over."""
        sock = self._take()
        if sock is not None:
            self._loop.close_later(sock)

    def _is_decided(self) -> bool:
        if self._sock is None:
            return True
        code = self._sock.connect_ex(self._address)
        if code in _UNDER_WAY:
            return False
        if code and code != errno.EISCONN:
            self._fail(OSError(code, os.strerror(code)))
        elif (sock := self._take()) is not None:
            self._opened(sock)
        return True

    def _fail(self, error: OSError) -> None:
        self.cancel()
        self._failed(error)

    def _take(self) -> socket.socket | None:
        sock, self._sock = self._sock, None
        if sock is not None and self._timer is not None:
            self._timer.cancel()
            self._loop.direct.unwatch(sock.fileno())
        return sock
