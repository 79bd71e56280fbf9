"""The limiter's event loop: asyncio's, with connections served inside its selector (`selector` says why and how).

All of asyncio works on it as always: whatever it does begins with `call_soon`, `call_at` or one of its own descriptors,
and each of these makes the selector return, so that nothing of asyncio waits longer than for one batch of events.

One rule comes with it: a descriptor is unwatched first and closed in a later turn (`close_later`). Until then its
number cannot become another connection's, and events for it that are still in the batch meet nobody.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

from penstock.limiter.lanes import Lanes
from penstock.limiter.nativelanes import lanes_on
from penstock.limiter.selector import DirectSelector

Ts = TypeVarTuple("Ts")


class Loop(asyncio.SelectorEventLoop):
    """The limiter's event loop.

    Attributes:
        direct: Watches the descriptors of connections.
    """

    def __init__(self, *, lanes: Callable[[select.epoll], Lanes] = lanes_on) -> None:
        """Begin to run nothing; see `DirectSelector` for `lanes`."""
        self.direct = DirectSelector(self._handler_failed, lanes=lanes)
        super().__init__(self.direct)

    def close_later(self, sock: socket.socket) -> None:
        """Unwatch a socket now and close it in the next turn."""
        self.direct.unwatch(sock.fileno())
        self.call_soon(sock.close)

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """See `asyncio.loop.call_soon`."""
        self.direct.turn.returns = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See `asyncio.loop.call_at`."""
        turn = self.direct.turn
        turn.until = min(when, turn.until)
        return super().call_at(when, callback, *args, context=context)

    def _handler_failed(self, error: Exception) -> None:
        self.call_exception_handler({"message": "the handler of a file descriptor failed", "exception": error})


def running_loop() -> Loop:
    """Return the loop that runs.

    Raises:
        RuntimeError: it is of another kind, or none runs.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, Loop):
        raise RuntimeError(f"the limiter needs the event loop of {__name__}; {type(loop).__qualname__} runs")
    return loop
