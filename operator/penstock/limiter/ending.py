"""How a connection ends: not before the client had time to read what was sent, and not later than that either.

Theory of operation. An orderly close sends what is waiting first, and for a client that reads nothing this lasts for
ever. So whenever bytes wait for a client, somebody looks at them from time to time: as long as they become fewer the
client reads, otherwise it is given up. After its last answer a client may still be sending; closing then would make the
kernel reset the connection and could destroy the answer on its way. So the connection *lingers*: the limiter stops
sending and reads on for a while.
"""

from __future__ import annotations

import asyncio

from penstock.limiter.deadline import Deadline
from penstock.limiter.service import Times


class Ending:
    """Bounds how long one client may take to read, by the connection's deadline."""

    def __init__(
        self, transport: asyncio.Transport, deadline: Deadline, *, loop: asyncio.AbstractEventLoop, times: Times
    ) -> None:
        self._transport = transport
        self._deadline = deadline
        self._loop = loop
        self._times = times
        self._unsent = 0
        self._linger_until = 0.0

    def watch(self) -> None:
        """Begin to look whether the client reads."""
        self._unsent = self._transport.get_write_buffer_size()
        self._deadline.set(self._times.write_stall_seconds)

    def look(self) -> None:
        """Give the client up when it has taken nothing since the last look."""
        before, self._unsent = self._unsent, self._transport.get_write_buffer_size()
        if self._unsent < before:
            self._deadline.set(self._times.write_stall_seconds)
        else:
            self._transport.abort()

    def close(self) -> None:
        """Close once everything is sent."""
        self._transport.close()
        self.watch()

    def linger(self) -> None:
        """Stop sending, read on."""
        self._transport.write_eof()
        self._linger_until = self._loop.time() + self._times.linger_seconds
        self.watch()
        if not self._unsent:
            self._deadline.set(self._times.linger_silence_seconds)

    def heard(self) -> None:
        """A client that lingers has sent something."""
        if not self._transport.get_write_buffer_size():
            self._deadline.set(min(self._times.linger_silence_seconds, self._linger_until - self._loop.time()))
