"""Where the limiter waits for events, and where the pieces of token streams pass through.

Theory of operation. A turn of asyncio's loop costs more than what the limiter does with one piece of a stream: every
event becomes a handle, is queued, and run. So the descriptors of connections never reach asyncio. Their handlers are
called inside `select`, where the loop waits for events anyway, and `select` does not return before asyncio has
something to do: one of its own descriptors is ready (they are in an epoll instance of their own, which is itself
watched here), a timer is due, or somebody set `returns`.

A token stream is the same small event over and over: one whole chunk has come, and goes on as it is. What this costs is
less the steps than the memory they touch, because the kernel's work in between leaves none of it in the processor's
caches. So for a stream that is *on a lane* the loop touches nothing of the stream: it reads from one descriptor, looks
at the first and the last bytes, and writes to the other. Everything else is handed to the lane's owner. A lane can have
a mark, without which a chunk is not passed on, nor one with several events: then the lane counts tokens, too.
"""

from __future__ import annotations

import os
import select
import selectors
import time
from collections.abc import Callable
from typing import Protocol

from penstock.limiter.framing import EVENT_CHUNK_END, EVENT_END, KNOWN_START_BYTES, WHOLE_CHUNKS

READABLE = select.EPOLLIN
WRITABLE = select.EPOLLOUT
READ_BYTES = 64 * 1024
BATCH_LIMIT = 256
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
        returns: Set to make `select` return after the batch.
        until: When `select` returns in any case, by `time.monotonic`; it may be moved forward in the meantime.
        lane_bytes: How many bytes all lanes have passed on.
    """

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        """Begin with nothing watched; `failed` is told what handlers and lanes raise."""
        super().__init__()
        self.returns = False
        self.until = 0.0
        self.lane_bytes = 0
        self._failed = failed
        self._for_asyncio = False
        self._epoll = select.epoll()
        # by descriptor number
        self._handlers: list[Handler] = []
        self._targets: list[int] = []  # -1 without a lane
        self._lanes: list[Lane | None] = []
        self._marks: list[bytes | None] = []
        self._chunks: list[int] = []
        self.watch(self.fileno(), READABLE, self._asyncio_is_ready)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Serve until there is something for asyncio to do, or `timeout` seconds have passed."""
        clock, poll, read, write, whole = time.monotonic, self._epoll.poll, os.read, os.write, WHOLE_CHUNKS
        handlers, targets, marks, chunks = self._handlers, self._targets, self._marks, self._chunks
        left = FOREVER_SECONDS if timeout is None else max(timeout, 0)
        self.until = clock() + left
        self.returns = self._for_asyncio = False
        while True:
            for number, events in poll(left, BATCH_LIMIT):
                target = targets[number]
                try:
                    if target < 0 or events != READABLE:
                        handlers[number](events)
                        continue
                    try:
                        data = read(number, READ_BYTES)
                    except OSError as error:
                        self._lane(number).not_read(error)
                        continue
                    size = len(data)
                    if whole.get(data[:KNOWN_START_BYTES]) != size or data[-4:] != EVENT_CHUNK_END:
                        self._lane(number).not_whole(data)
                        continue
                    mark = marks[number]
                    if mark is not None:
                        if data.find(EVENT_END) != size - len(EVENT_CHUNK_END) or mark not in data:
                            self._lane(number).not_whole(data)
                            continue
                        chunks[number] += 1
                    self.lane_bytes += size
                    try:
                        sent = write(target, data)
                    except OSError as error:
                        self._lane(number).not_written(data, error)
                        continue
                    if sent != size:
                        self._lane(number).partly_written(data[sent:])
                except Exception as error:
                    self._failed(error)
            left = self.until - clock()
            if self.returns or left <= 0:
                return super().select(0) if self._for_asyncio else []

    def watch(self, number: int, events: int, handler: Handler) -> None:
        """Call `handler` whenever any of `events` is so, or the connection is broken.

        Replaces what was watched of this descriptor before. What the handler is told is worth a try and no promise.
        """
        handlers = self._handlers
        missing = number + 1 - len(handlers)
        if missing > 0:
            handlers.extend([_nobody] * missing)
            self._targets.extend([-1] * missing)
            self._lanes.extend([None] * missing)
            self._marks.extend([None] * missing)
            self._chunks.extend([0] * missing)
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
        self._targets[number] = target
        self._lanes[number] = lane
        self._marks[number] = mark
        self._chunks[number] = 0

    def close_lane(self, number: int) -> int:
        """Pass nothing on any more, and return how many marked chunks were; harmless without a lane."""
        if number >= len(self._targets):
            return 0
        self._targets[number] = -1
        self._lanes[number] = None
        return self._chunks[number]

    def close(self) -> None:
        """Close both epoll instances."""
        self._epoll.close()
        super().close()

    def _lane(self, number: int) -> Lane:
        lane = self._lanes[number]
        assert lane is not None  # noqa: S101 - it has a target
        return lane

    def _asyncio_is_ready(self, _events: int) -> None:
        self._for_asyncio = self.returns = True


def _nobody(_events: int) -> None:
    """Take events of a descriptor that was unwatched since they happened."""
