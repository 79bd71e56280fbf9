"""The way of one response body, from the engine's connection to the client's.

Theory of operation. Every read is followed through the body's framing to find its end, and passed on as it came: one
write per read. A token stream makes the same kind of read again and again: one whole chunk that holds whole events.
While nothing of a chunk or an event is outstanding the passage is *at rest*, and such a read leaves it at rest. So for
that long, and while no bytes wait for the client, it puts itself on a lane (`selector`), which recognises such reads by
their size line and last bytes and passes them on. Everything else comes here and is followed through the framing.

Who sends to several clients takes the payload alone (`unchunk`) and has no lane; so does a client of HTTP/1.0.

Where the engine was asked for a usage event that the client did not ask for, the watch (`usage`) takes it out. A read
that loses something goes on as one chunk of what is left, as does one that ends within a chunk; so the client stands
between two chunks after every write. An answer of a known length that may lose something goes on in chunks as well.

The passage also knows what can be put into the body by the limiter itself, because that depends on where it stands.
"""

from __future__ import annotations

from typing import Protocol

from penstock.limiter.client import Sink
from penstock.limiter.framing import (
    EVENT_CHUNK_END,
    LAST_CHUNK,
    Body,
    ChunkScanner,
    FixedBody,
    FramingError,
    OpenBody,
    body_of,
)
from penstock.limiter.head import ResponseHead
from penstock.limiter.refusal import Dialect, Refused, stream_error
from penstock.limiter.selector import DirectSelector
from penstock.limiter.transport import Transport
from penstock.limiter.usage import UsageWatch

TAIL_BYTES = 6


class Owner(Protocol):
    """Is told how a passage ends."""

    def completed(self, *, surplus: bool) -> None:
        """The body is complete; `surplus` says whether the engine sent more than that."""

    def broke_off(self, error: FramingError) -> None:
        """The body broke its own framing: where the client's body stands is not known any more."""


class Traffic:
    """What all passages of a service have sent.

    Attributes:
        bytes_sent: Body bytes, with chunk frames.
    """

    __slots__ = ("bytes_sent",)

    def __init__(self) -> None:
        self.bytes_sent = 0


class Passage:
    """One response body on its way; give it `begin` once, then `read_from`."""

    __slots__ = (
        "_at_rest", "_body", "_chunked", "_on_lane", "_owner", "_rewrites", "_selector", "_sink", "_source", "_stream",
        "_tail", "_target", "_traffic", "_unchunk", "_watch",
    )  # fmt: skip

    def __init__(
        self,
        head: ResponseHead,
        *,
        owner: Owner,
        sink: Sink,
        selector: DirectSelector,
        traffic: Traffic,
        unchunk: bool,
        watch: UsageWatch | None = None,
    ) -> None:
        """Prepare for the body that a head announces.

        Args:
            head: The engine's.
            owner: Told how it ends.
            sink: Takes the bytes; a lane can only lead to a connection.
            selector: Where there are lanes.
            traffic: Counts what is sent.
            unchunk: Whether to send the payload without frames where it would be in chunks.
            watch: Reads the usage of the answer.
        """
        self._body: Body = body_of(head.length)
        self._owner = owner
        self._sink = sink
        self._target = sink if isinstance(sink, Transport) else None
        self._selector = selector
        self._source: Transport | None = None
        self._traffic = traffic
        self._unchunk = unchunk
        self._stream = head.is_event_stream
        self._watch = watch
        self._rewrites = watch is not None and watch.removes
        framed = isinstance(self._body, ChunkScanner) or (self._rewrites and isinstance(self._body, FixedBody))
        self._chunked = framed and not unchunk
        self._tail = b""
        self._at_rest = self._on_lane = False

    @property
    def ends_with_connection(self) -> bool:
        """Whether the engine ends the body by closing."""
        return isinstance(self._body, OpenBody)

    @property
    def end_is_close(self) -> bool:
        """Whether the client takes an orderly close for the end of the body."""
        return self._unchunk or self.ends_with_connection

    def begin(self, head: bytes, data: bytes) -> None:
        """Send the head, and in the same write what came of the body in the same read: one system call less."""
        if data and not self._body.done:
            self._follow(data, head)
            return
        self._sink.write(head)
        if self._body.done:
            self._owner.completed(surplus=bool(data))

    def read_from(self, source: Transport) -> None:
        """Read the rest of the body from the engine's connection."""
        self._source = source
        source.receive = self.receive
        self._change_lane()

    def receive(self, data: bytes) -> None:
        """Pass on one read."""
        self._follow(data)

    def input_ended(self) -> None:
        """The engine has closed the connection, which ends a body that says nothing else about its end."""
        if self._watch is not None and (rest := self._watch.end()):
            self._traffic.bytes_sent += len(rest)
            self._sink.write(rest)
        self._owner.completed(surplus=False)

    def close(self) -> None:
        """The body is over, or is to be."""
        self._at_rest = False
        self._change_lane()

    # ---- on the lane

    def not_whole(self, data: bytes) -> None:
        """See `Lane.not_whole`."""
        assert self._source is not None  # noqa: S101 - it has a lane
        try:
            if data:
                self._follow(data)
            else:
                self._source.input_ended()
        except Exception as error:
            self._source.failed(error)

    def not_read(self, error: OSError) -> None:
        """See `Lane.not_read`."""
        assert self._source is not None  # noqa: S101 - it has a lane
        self._source.cannot_read(error)

    def not_written(self, data: bytes, error: OSError) -> None:
        """See `Lane.not_written`."""
        assert self._target is not None  # noqa: S101 - its lane leads there
        self._target.cannot_send(error, data)

    def partly_written(self, rest: bytes) -> None:
        """See `Lane.partly_written`."""
        assert self._target is not None  # noqa: S101 - its lane leads there
        self._target.keep(rest)

    def halt(self) -> None:
        """Bytes wait for the client; see `Feeder.halt`."""
        if self._on_lane and self._source is not None:
            self._on_lane = False
            chunks = self._selector.close_lane(self._source.number)
            if self._watch is not None:
                self._watch.chunks += chunks

    def _change_lane(self) -> None:
        """Be on a lane exactly while at rest and nothing waits for the client."""
        if self._target is None:
            return
        if self._on_lane:
            if not self._at_rest:
                self._target.feed_by(None)
                self.halt()
        elif self._at_rest and self._source is not None:
            number = self._target.feed_by(self)
            if number >= 0:
                self._on_lane = True
                mark = None if self._watch is None else self._watch.lane_mark
                self._selector.open_lane(self._source.number, number, self, mark=mark)

    # ---- what the limiter puts into the body

    def filler(self) -> bytes:
        """Return bytes that can be sent now without changing the body: a leading zero of the next chunk's size."""
        return b"0" if self._chunked and (self._body.at_boundary or self._rewrites) else b""

    def farewell(self, refused: Refused, dialect: Dialect) -> bytes:
        """Return what tells the client inside the body that no more comes; empty when that is not possible."""
        between = self._body.at_boundary or self._rewrites or self._unchunk
        if not (self._stream and between):
            return b""
        event = stream_error(refused, dialect)
        tail = self._tail.removesuffix(b"\r\n") if self._chunked else self._tail
        if tail and not tail.endswith((b"\n\n", b"\r\n\r\n")):
            event = b"\n\n" + event  # completes the event that broke off
        return b"%x\r\n%b\r\n0\r\n\r\n" % (len(event), event) if self._chunked else event

    def _follow(self, data: bytes, head: bytes = b"") -> None:
        """Pass on what belongs to the body, by its framing; `head` is sent before it in any case."""
        payload: list[bytes] = []
        body, watch = self._body, self._watch
        whole_chunks = body.at_boundary
        try:
            used = body.feed(data, payload.append if self._unchunk or watch is not None else None)
        except FramingError as error:
            if head:
                self._sink.write(head)
            self._stream = False  # nothing can be put into it any more
            self._owner.broke_off(error)
            return
        sent = data[:used]
        if self._unchunk or watch is not None:
            content = b"".join(payload)
            kept = content if watch is None else self._watched(watch, content)
            if self._unchunk or not self._chunked:
                sent = kept
            elif self._rewrites and not (whole_chunks and (body.at_boundary or body.done) and kept == content):
                sent = _chunk(kept) + (LAST_CHUNK if body.done else b"")
        self._traffic.bytes_sent += len(sent)
        self._tail = (self._tail + sent)[-TAIL_BYTES:]
        if sent or head:
            self._sink.write(head + sent)
        self._at_rest = self._chunked and body.at_boundary and sent.endswith(EVENT_CHUNK_END)
        if watch is not None and self._at_rest:
            self._at_rest = watch.lane_mark is not None
        self._change_lane()
        if body.done:
            self._owner.completed(surplus=used < len(data))

    def _watched(self, watch: UsageWatch, content: bytes) -> bytes:
        kept = watch.feed(content) if content else content
        return kept + watch.end() if self._body.done else kept


def _chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content) if content else b""
