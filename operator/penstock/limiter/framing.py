"""Bodies: where they end, without changing a byte.

Each class follows one framing. `feed(data)` returns how many bytes of `data` belong to the message and sets `done` at
its end; the relay passes these bytes on as they are. `ChunkScanner` only finds the end: it hands payload to a `sink`
when the caller wants the body without its chunk frames (a request's body, or a client that speaks HTTP/1.0).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from penstock.limiter.head import CHUNKED, UNTIL_CLOSE

CHUNK_LINE_LIMIT_BYTES = 280
TRAILER_LIMIT_BYTES = 1024
EVENT_END = b"\n\n"
EVENT_CHUNK_END = EVENT_END + b"\r\n"
LAST_CHUNK = b"0\r\n\r\n"
KNOWN_START_BYTES = 5  # a size of up to three digits and its CR LF
WHOLE_CHUNKS_LIMIT = 4096

Sink = Callable[[bytes], None]

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]{0,256})?\r\n")
_TRAILER = re.compile(rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*\r\n)*")

WHOLE_CHUNKS: dict[bytes, int] = {}
"""How long a whole chunk is, in bytes with its frame, by its first `KNOWN_START_BYTES`; learned from chunks that were
valid, for all streams. Only for chunks that hold something and whose size line fits into these bytes."""


class FramingError(Exception):
    """The body breaks its own framing."""


class Body(Protocol):
    """Follows a body to its end."""

    done: bool
    """True when the whole message was seen."""

    @property
    def at_boundary(self) -> bool:
        """Whether nothing of a frame is outstanding, so that something could be put in between."""
        ...

    def feed(self, data: bytes, sink: Sink | None = None) -> int:
        """Return how many bytes of `data` belong to this message.

        Raises:
            FramingError: the bytes are not what the framing asks for.
        """
        ...


class FixedBody:
    """A body of known length."""

    __slots__ = ("done", "left")
    at_boundary = False

    def __init__(self, length: int) -> None:
        self.left = length
        self.done = length == 0

    def feed(self, data: bytes, sink: Sink | None = None) -> int:
        """Count down; see `Body.feed`."""
        size = len(data)
        if size < self.left:
            self.left -= size
            used = size
        else:
            used = self.left
            self.left = 0
            self.done = True
        if sink is not None and used:
            sink(data if used == size else data[:used])
        return used


class OpenBody:
    """A body that ends with its connection."""

    __slots__ = ("done",)
    at_boundary = True

    def __init__(self) -> None:
        self.done = False

    def feed(self, data: bytes, sink: Sink | None = None) -> int:
        """Take everything; see `Body.feed`."""
        if sink is not None:
            sink(data)
        return len(data)


class ChunkScanner:
    """A chunked body.

    `_left` payload bytes of the current chunk are outstanding; `_held` are bytes of a size line, chunk end or trailer
    that a read cut in two, at most a few hundred bytes.
    """

    __slots__ = ("_closing", "_held", "_left", "_trailer", "at_boundary", "done")

    def __init__(self) -> None:
        self.done = False
        self.at_boundary = True
        self._left = 0
        self._held = b""
        self._closing = False  # the payload of a chunk is complete, its CR LF is not
        self._trailer = False

    def feed(self, data: bytes, sink: Sink | None = None) -> int:
        """Scan; see `Body.feed`."""
        if data == LAST_CHUNK and self.at_boundary:  # how nearly every stream ends
            self.done = True
            self.at_boundary = False
            return len(data)
        used = self._scan(data, sink)
        self.at_boundary = not (self._left or self._held or self._closing or self._trailer or self.done)
        return used

    def _scan(self, data: bytes, sink: Sink | None) -> int:
        held = len(self._held)
        if held:
            data = self._held + data
            self._held = b""
        position, end = 0, len(data)
        while position < end and not self.done:
            if self._left:
                taken = min(self._left, end - position)
                if sink is not None:
                    sink(data[position : position + taken])
                position += taken
                self._left -= taken
                self._closing = not self._left
            elif self._closing:
                if end - position < 2:
                    return self._hold(data, position, held, CHUNK_LINE_LIMIT_BYTES)
                if data[position : position + 2] != b"\r\n":
                    raise FramingError("a chunk is longer than its size says")
                position += 2
                self._closing = False
            elif self._trailer:
                after = self._end_of_trailer(data, position)
                if after < 0:
                    return self._hold(data, position, held, TRAILER_LIMIT_BYTES)
                position = after
                self.done = True
            else:
                match = _SIZE_LINE.match(data, position)
                if match is None:
                    return self._hold(data, position, held, CHUNK_LINE_LIMIT_BYTES)
                self._left = int(match[1], 16)
                self._trailer = not self._left
                if self._left:
                    _learn(data[position : position + KNOWN_START_BYTES], len(match[0]), self._left)
                position = match.end()
        return position - held

    def _hold(self, data: bytes, position: int, held: int, limit: int) -> int:
        """Keep the unfinished tail for the next read, unless it can never become valid."""
        tail = data[position:]
        line_ended = not self._trailer and b"\n" in tail
        if len(tail) > limit or line_ended or not _PLAUSIBLE.fullmatch(tail):
            raise FramingError("a chunk size or trailer line is malformed")
        if not self._trailer and not self._closing and not _SIZE_START.fullmatch(tail):
            raise FramingError("a chunk size is not a hexadecimal number of at most 8 digits")
        if self._closing and tail != b"\r":
            raise FramingError("a chunk is longer than its size says")
        self._held = tail
        return len(data) - held

    @staticmethod
    def _end_of_trailer(data: bytes, position: int) -> int:
        if data.startswith(b"\r\n", position):
            return position + 2
        end = data.find(b"\r\n\r\n", position)
        if end < 0:
            return -1
        if end - position > TRAILER_LIMIT_BYTES or not _TRAILER.fullmatch(data, position, end + 2):
            raise FramingError("a trailer line is malformed")
        return end + 4


def _learn(start: bytes, line_bytes: int, size: int) -> None:
    if line_bytes <= KNOWN_START_BYTES == len(start) and len(WHOLE_CHUNKS) < WHOLE_CHUNKS_LIMIT:
        WHOLE_CHUNKS[start] = line_bytes + size + 2


_PLAUSIBLE = re.compile(rb"(?:[\t\x20-\x7e\x80-\xff]|\r\n)*\r?")
_SIZE_START = re.compile(rb"[0-9A-Fa-f]{1,8}(?:[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?)?\r?")


def body_of(length: int) -> Body:
    """Return the follower for a length as heads state it: a number of bytes, `CHUNKED` or `UNTIL_CLOSE`."""
    if length == CHUNKED:
        return ChunkScanner()
    if length == UNTIL_CLOSE:
        return OpenBody()
    return FixedBody(length)
