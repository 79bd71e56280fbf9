"""Where the limiter waits for events.

Theory of operation. A turn of asyncio's loop costs more than what the limiter does with one piece of a stream: every
event becomes a handle, is queued, and run. So the descriptors of connections never reach asyncio. Their handlers are
called inside `select`, where the loop waits for events anyway, and `select` does not return before asyncio has
something to do: one of its own descriptors is ready (they are in an epoll instance of their own, which is itself
watched here), a timer is due, or somebody set `returns`.

The pieces of token streams cost even less: they pass on lanes (`lanes`), which serve themselves while they wait.
"""

from __future__ import annotations

import select
import selectors
import time
from collections.abc import Callable
from typing import Protocol

from penstock.limiter.lanes import (
    EVENT,
    FAILED,
    NOT_READ,
    NOT_WHOLE,
    NOT_WRITTEN,
    OVER,
    PARTLY_WRITTEN,
    READ_BYTES,
    READABLE,
    WRITABLE,
    Lanes,
)
from penstock.limiter.nativelanes import lanes_on

__all__ = ["READABLE", "READ_BYTES", "WRITABLE", "DirectSelector", "Lane"]

FOREVER_SECONDS = 86_400.0  # a turn of asyncio's loop once a day for nothing is cheap

Handler = Callable[[int], object]
"""Called with events: any of `READABLE`, `WRITABLE` and epoll's signs of an end."""


class Lane(Protocol):
    """The owner of a lane: is given what the lane cannot pass on."""

    def not_whole(self, data: bytes) -> None:
        """Something else than one whole chunk of whole events was read; nothing, when the input has ended."""

    def not_read(self, error: OSError) -> None:
        """Reading raised an error."""

    def not_written(self, data: bytes, error: OSError) -> None:
        """Writing raised an error, perhaps only because the other side's buffer is full."""

    def partly_written(self, rest: bytes) -> None:
        """This was not written any more."""


class DirectSelector(selectors.EpollSelector):
    """asyncio's own selector, inside one that calls handlers.

    Attributes:
        turn: Tells when `select` returns: after the events of now when `turn.returns` is set, and in any case at
            `turn.until`, which may be moved forward in the meantime.
    """

    def __init__(
        self, failed: Callable[[Exception], None], *, lanes: Callable[[select.epoll], Lanes] = lanes_on
    ) -> None:
        """Begin with nothing watched.

        Args:
            failed: Is told what handlers and owners of lanes raise.
            lanes: Makes the lanes.
        """
        super().__init__()
        self._failed = failed
        self._for_asyncio = False
        self._epoll = select.epoll()
        self._lanes = lanes(self._epoll)
        self.turn = self._lanes.turn
        # by descriptor number
        self._handlers: list[Handler] = []
        self._owners: list[Lane | None] = []
        self.watch(self.fileno(), READABLE, self._asyncio_is_ready)

    @property
    def lane_bytes(self) -> int:
        """How many bytes all lanes have passed on."""
        return self.turn.bytes

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Serve until there is something for asyncio to do, or `timeout` seconds have passed."""
        turn, next_one, handlers = self.turn, self._lanes.next, self._handlers
        turn.until = time.monotonic() + (FOREVER_SECONDS if timeout is None else max(timeout, 0))
        turn.returns = self._for_asyncio = False
        turn.fresh = True
        while (what := next_one()) != OVER:
            if what == FAILED:
                raise self._lanes.error()
            try:
                if what == EVENT:
                    handlers[turn.number](turn.events)
                else:
                    self._tell_owner(what, turn.number)
            except Exception as error:
                self._failed(error)
        return super().select(0) if self._for_asyncio else []

    def watch(self, number: int, events: int, handler: Handler) -> None:
        """Call `handler` whenever any of `events` is so, or the connection is broken.

        Replaces what was watched of this descriptor before. What the handler is told is worth a try and no promise.
        """
        handlers = self._handlers
        missing = number + 1 - len(handlers)
        if missing > 0:
            handlers.extend([_nobody] * missing)
            self._owners.extend([None] * missing)
        if handlers[number] is _nobody:
            self._epoll.register(number, events)
        else:
            self._epoll.modify(number, events)
        handlers[number] = handler

    def unwatch(self, number: int) -> None:
        """Call nobody any more, not even for events that have happened already."""
        if number < len(self._handlers) and self._handlers[number] is not _nobody:
            self._handlers[number] = _nobody
            self._epoll.unregister(number)

    def open_lane(self, number: int, target: int, lane: Lane, *, mark: bytes | None = None) -> None:
        """Pass whole chunks of whole events from a descriptor, while it is watched, on to another.

        With a mark only chunks of one event with it are passed on, and they are counted.
        """
        self._owners[number] = lane
        self._lanes.open(number, target, mark)

    def close_lane(self, number: int) -> int:
        """Pass nothing on any more, and return how many marked chunks were; harmless without a lane."""
        if number < len(self._owners):
            self._owners[number] = None
        return self._lanes.close(number)

    def close(self) -> None:
        """Close both epoll instances."""
        self._lanes.end()
        self._epoll.close()
        super().close()

    def _tell_owner(self, what: int, number: int) -> None:
        lanes, owner = self._lanes, self._owners[number]
        assert owner is not None  # noqa: S101 - it has a lane
        if what == NOT_WHOLE:
            owner.not_whole(lanes.read())
        elif what == NOT_READ:
            owner.not_read(lanes.error())
        elif what == NOT_WRITTEN:
            owner.not_written(lanes.read(), lanes.error())
        elif what == PARTLY_WRITTEN:
            owner.partly_written(lanes.unwritten())

    def _asyncio_is_ready(self, _events: int) -> None:
        self._for_asyncio = self.turn.returns = True


def _nobody(_events: int) -> None:
    """Take events of a descriptor that was unwatched since they happened."""
