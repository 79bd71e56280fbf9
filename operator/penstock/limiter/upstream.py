"""Connections to the engine: a small pool of idle ones.

A connection is used for one request at a time and told where its bytes go by two callables. It is reused only while it
is certain to be open: idle for less than the engine keeps idle connections, below the number of requests after which
llama-server ends one, and with its end not yet seen by the kernel when it is taken. What little race remains is left
to the caller, who may try again only what is safe to do twice.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from penstock.limiter import tcp
from penstock.limiter.dial import Dial
from penstock.limiter.loop import Loop
from penstock.limiter.transport import Transport

IDLE_LIMIT = 64
REQUESTS_LIMIT = 90  # llama-server ends a connection after 100
IDLE_MARGIN_SECONDS = 1.5
CONNECT_SECONDS = 3.0


class Upstream(asyncio.Protocol):
    """One connection to the engine.

    Attributes:
        lost: Told when the connection ends, with the error, or None after an orderly end.
        requests: How many requests it was given.
        idle_since: Loop time since which it is in the pool.
    """

    transport: Transport
    lost: Callable[[Exception | None], None]

    def __init__(self) -> None:
        self.requests = 0
        self.idle_since = 0.0
        self.lost = _nobody

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, Transport)  # noqa: S101 - nobody else makes connections
        self.transport = transport

    def data_received(self, _data: bytes) -> None:
        """Bytes that nobody asked for show that the connection is of no use."""
        self.transport.abort()

    def attach(self, receive: Callable[[bytes], None], lost: Callable[[Exception | None], None]) -> None:
        """Hand what the engine sends to `receive`, and the end of the connection to `lost`."""
        self.transport.receive = receive
        self.lost = lost

    def connection_lost(self, error: Exception | None) -> None:
        """Pass on, once."""
        lost = self.lost
        self.detach()
        lost(error)

    def detach(self) -> None:
        """Belong to nobody."""
        self.lost = _nobody
        self.transport.receive = self.data_received

    def abort(self) -> None:
        """End the connection at once; the engine sees its client leave."""
        self.detach()
        self.transport.abort()

    def is_usable(self) -> bool:
        """Return whether it is open and silent, although the event loop may not have noticed yet what came."""
        return not self.transport.is_closing() and tcp.is_quiet(self.transport.number)

    @property
    def reused(self) -> bool:
        """Whether it has carried another request before."""
        return self.requests > 1


def _nobody(_error: Exception | None) -> None:
    return


class Pool:
    """Idle connections to one engine, the most recently used first."""

    def __init__(self, host: str, port: int, *, idle_seconds: float, loop: Loop) -> None:
        self.host = host
        self.port = port
        self._keep_seconds = max(0.0, idle_seconds - IDLE_MARGIN_SECONDS)
        self._loop = loop
        self._idle: list[Upstream] = []
        self._sweeper: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._idle)

    def take(self) -> Upstream | None:
        """Return an idle connection that is certainly open, or None."""
        oldest = self._loop.time() - self._keep_seconds
        while self._idle:
            upstream = self._idle.pop()
            if upstream.idle_since >= oldest and upstream.is_usable():
                return upstream
            upstream.abort()
        return None

    def open(self, opened: Callable[[Upstream], object], failed: Callable[[OSError], object]) -> Dial:
        """Open a new connection; one of the two is called, perhaps at once, unless the dial is cancelled."""

        def connected(sock: socket.socket) -> None:
            upstream = Upstream()
            Transport(self._loop, sock, upstream)
            opened(upstream)

        address = (self.host, self.port)
        return Dial(self._loop, address, seconds=CONNECT_SECONDS, opened=connected, failed=failed)

    def give(self, upstream: Upstream) -> None:
        """Take back a connection whose response was complete."""
        upstream.detach()
        if upstream.requests >= REQUESTS_LIMIT or len(self._idle) >= IDLE_LIMIT or upstream.transport.is_closing():
            upstream.abort()
            return
        upstream.transport.resume_reading()
        upstream.idle_since = self._loop.time()
        self._idle.append(upstream)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._keep_seconds, self._sweep)

    def close(self) -> None:
        """End all idle connections."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        while self._idle:
            self._idle.pop().abort()

    def _sweep(self) -> None:
        now = self._loop.time()
        kept = []
        for upstream in self._idle:
            if upstream.transport.is_closing() or upstream.idle_since + self._keep_seconds <= now:
                upstream.abort()
            else:
                kept.append(upstream)
        self._idle = kept
        self._sweeper = self._loop.call_later(self._keep_seconds, self._sweep) if kept else None
