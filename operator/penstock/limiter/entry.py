"""What the quotas of connections say when a client connects, and what follows from it.

    they say   | the connection
    -----------|---------------------------------------------------------------------------------
    welcome    | is counted until it ends
    later      | is not read from for a while: an even pace
    refused    | is read until its first head; a generation request gets 429, and it ends

A client that was refused is told when it asks and not before, because an answer to nothing is an error to most HTTP
clients. What is never limited, such as `/health`, is answered on a refused connection too, which ends after that.
"""

from __future__ import annotations

import asyncio

from penstock.admission.connected import Connected
from penstock.limiter.refusal import Refused
from penstock.limiter.service import Request
from penstock.limiter.transport import Transport


class Entry:
    """See the module's docstring.

    Attributes:
        refused: Why its requests are refused; None when they are not.
    """

    __slots__ = ("_connected", "_loop", "_pause", "refused")

    def __init__(
        self, found: Connected | Refused | None, transport: Transport, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Take what the quotas say."""
        self.refused = found if isinstance(found, Refused) else None
        self._connected = found if isinstance(found, Connected) else None
        self._loop = loop
        self._pause: asyncio.TimerHandle | None = None
        if self._connected is not None and self._connected.delay_seconds:
            transport.pause_reading()
            self._pause = loop.call_later(self._connected.delay_seconds, transport.resume_reading)

    def check(self, request: Request) -> None:
        """Look at a request's head.

        Raises:
            Refused: it is for the engine, and the connection is one too many.
        """
        if self.refused is not None and request.caller is not None:
            raise self.refused

    def end(self) -> None:
        """The connection has ended."""
        if self._pause is not None:
            self._pause.cancel()
        connected, self._connected = self._connected, None
        if connected is not None:
            connected.close(self._loop.time())
