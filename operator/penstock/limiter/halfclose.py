"""A client that ended its sending side: has it left, or is it still reading?

Both look the same until something is sent; then a connection that was closed answers with a reset. So the client is
sent a filler now and then: before the response an interim `100 Continue`, which every HTTP/1.1 client skips; between
two chunks a leading zero of the next chunk's size. Few, because clients bear only a handful of interim responses; what
the engine sends serves the same purpose later. Where nothing may be sent, because the engine has gone silent within a
chunk, the kernel's own questions find out, only later (`tcp.ask_when_silent`). So a client that waits is served for as
long as it waits, and one that has left keeps a permit for a minute or so at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.limiter import tcp

# (seconds since the last look, whether to send a filler)
LOOKS = ((0.0, True), (0.02, False), (0.1, False), (0.9, True), (0.1, False), (4.0, True), (0.1, False), (15.0, True))
LOOK_SECONDS = 1.0


class HalfClosed:
    """Watches one client until its request has ended, and aborts the transport when the client has left."""

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, filler: Callable[[], bytes | None]
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._filler = filler
        self._look(0)

    def _look(self, number: int) -> None:
        """Look once; `filler` returns None when there is nothing to watch any more."""
        if self._transport.is_closing():
            return
        if tcp.is_reset(self._transport):
            self._transport.abort()
            return
        filler = self._filler()
        if filler is None:
            return
        if number < len(LOOKS) and LOOKS[number][1]:
            self._transport.write(filler)
        seconds = LOOKS[number + 1][0] if number + 1 < len(LOOKS) else LOOK_SECONDS
        self._loop.call_later(seconds, self._look, number + 1)
