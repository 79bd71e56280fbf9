"""Lanes: where the pieces of token streams pass from one descriptor to another.

Theory of operation. A token stream is the same small event over and over: one whole chunk has come, and goes on as it
is. What this costs is less the steps than the memory they touch, because the kernel's work in between leaves none of it
in the processor's caches. So for a stream that is *on a lane* nothing of the stream is touched: its lane reads from one
descriptor, looks at the first and the last bytes, and writes to the other. Everything else is handed to the lane's
owner. A lane can have a mark, without which a chunk is not passed on, nor one with several events: then the lane counts
tokens, too.

Lanes also wait for events, because the next event of a stream is mostly another stream's: `next` returns only when
somebody else has to do something, and says what. Between two calls of it its `turn` holds what is known.

    next returns    | since                                              | the turn has
    ----------------|----------------------------------------------------|------------------------
    EVENT           | an event came for a descriptor without a lane,     | number, events
                    | or none of those that a lane takes                 |
    NOT_WHOLE       | something else than one whole chunk of whole       | number, read
                    | events was read; nothing, when the input has ended |
    NOT_READ        | reading raised an error                            | number, error
    NOT_WRITTEN     | writing raised an error, perhaps only because the  | number, read, error
                    | other side's buffer is full                        |
    PARTLY_WRITTEN  | a part of what was read was not written any more   | number, unwritten
    OVER            | all events were handled, and it is time to return  |
    FAILED          | waiting itself raised an error                     | error

There are two of them, which do the same: these here, and the same steps in C (`nativelanes`), which cost a fraction.
Only how they know a whole chunk differs: C reads its size, Python looks its first bytes up among those of chunks that
were valid.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from penstock.limiter.framing import EVENT_CHUNK_END, EVENT_END, KNOWN_START_BYTES, WHOLE_CHUNKS

READABLE = select.EPOLLIN
WRITABLE = select.EPOLLOUT
READ_BYTES = 64 * 1024
BATCH_LIMIT = 256
FRAME_RETURNS = 2
"""How many CR the frame of a chunk has; one in its payload may end another event."""

OVER, EVENT, NOT_WHOLE, NOT_READ, NOT_WRITTEN, PARTLY_WRITTEN, FAILED = range(7)


class Turn(Protocol):
    """What lanes and their caller tell each other.

    Attributes:
        until: When `next` returns in any case, by `time.monotonic`.
        returns: Whether it does so after the events that are known.
        fresh: Whether it has to look for events once before.
        bytes: How many all lanes have passed on.
        number: The descriptor that is meant.
        events: What epoll says about it.
    """

    until: float
    returns: bool
    fresh: bool
    bytes: int
    number: int
    events: int


class Lanes(Protocol):
    """See the module's docstring."""

    turn: Turn

    def open(self, number: int, target: int, mark: bytes | None) -> None:
        """Pass whole chunks of whole events from a descriptor, while it is watched, on to another.

        With a mark only chunks of one event with it are passed on, and they are counted.
        """

    def close(self, number: int) -> int:
        """Pass nothing on any more, and return how many marked chunks there were; the same when repeated."""

    @property
    def next(self) -> Callable[[], int]:
        """Serve until somebody else has to do something."""

    def read(self) -> bytes:
        """Return what was read last."""

    def unwritten(self) -> bytes:
        """Return what of it was not written."""

    def error(self) -> OSError:
        """Return the error that reading or writing raised."""

    def end(self) -> None:
        """Let go of everything; the last call."""


class _PythonTurn:
    __slots__ = ("bytes", "events", "fresh", "number", "returns", "until")

    def __init__(self) -> None:
        self.until = 0.0
        self.returns = self.fresh = False
        self.bytes = self.number = self.events = 0


class PythonLanes:
    """Lanes on an epoll instance."""

    def __init__(self, epoll: select.epoll) -> None:
        """Begin without lanes."""
        self.turn: Turn = _PythonTurn()
        self._epoll = epoll
        self._batch: Iterator[tuple[int, int]] = iter(())
        # by descriptor number
        self._targets: list[int] = []  # -1 without a lane
        self._marks: list[bytes | None] = []
        self._chunks: list[int] = []
        self._data = b""
        self._sent = 0
        self._error = OSError()

    def open(self, number: int, target: int, mark: bytes | None) -> None:
        """See `Lanes.open`."""
        missing = number + 1 - len(self._targets)
        if missing > 0:
            self._targets.extend([-1] * missing)
            self._marks.extend([None] * missing)
            self._chunks.extend([0] * missing)
        self._targets[number] = target
        self._marks[number] = mark
        self._chunks[number] = 0

    def close(self, number: int) -> int:
        """See `Lanes.close`."""
        if number >= len(self._targets):
            return 0
        self._targets[number] = -1
        return self._chunks[number]

    def next(self) -> int:  # noqa: PLR0911 - one per row of the table
        """See `Lanes.next`."""
        turn, targets, marks = self.turn, self._targets, self._marks
        while True:
            for number, events in self._batch:
                turn.number = number
                target = targets[number] if number < len(targets) else -1
                if target < 0 or events != READABLE:
                    turn.events = events
                    return EVENT
                try:
                    self._data = data = os.read(number, READ_BYTES)
                except OSError as error:
                    self._error = error
                    return NOT_READ
                size, mark = len(data), marks[number]
                if WHOLE_CHUNKS.get(data[:KNOWN_START_BYTES]) != size or data[-4:] != EVENT_CHUNK_END:
                    return NOT_WHOLE
                if mark is not None:
                    alone = data.find(EVENT_END) == size - len(EVENT_CHUNK_END) and data.count(b"\r") == FRAME_RETURNS
                    if not alone or mark not in data:
                        return NOT_WHOLE
                    self._chunks[number] += 1
                turn.bytes += size
                try:
                    self._sent = os.write(target, data)
                except OSError as error:
                    self._error = error
                    return NOT_WRITTEN
                if self._sent != size:
                    return PARTLY_WRITTEN
            left = turn.until - time.monotonic()
            if not turn.fresh and (turn.returns or left <= 0):
                return OVER
            turn.fresh = False
            try:
                self._batch = iter(self._epoll.poll(max(left, 0), BATCH_LIMIT))
            except OSError as error:
                self._error = error
                return FAILED

    def read(self) -> bytes:
        """See `Lanes.read`."""
        return self._data

    def unwritten(self) -> bytes:
        """See `Lanes.unwritten`."""
        return self._data[self._sent :]

    def error(self) -> OSError:
        """See `Lanes.error`."""
        return self._error

    def end(self) -> None:
        """See `Lanes.end`."""
