"""One request at the engine: from the permit to the last byte.

Theory of operation. An exchange ties a client to a connection of the engine's. The client is a connection, or a run
that several connections follow (`run`); a run is told the engine's head and the payload, and writes heads and framing
for each of them. The engine's head is read and
written anew; the body takes a `Passage`. Whatever happens first ends the exchange, once: the engine's response is
complete, the engine fails or lets a read wait for too long, the client leaves, or the limiter cuts it. The permit goes
back there and nowhere else. Generation has no time limit here: a long answer is what the client asked for.

A request is sent again only when that cannot do anything twice: the method is safe, the connection had been used
before, and it ended without a single byte. Everything else is answered with 502 and left to the client.

Once the head is out, a failure can only be told inside the body. An event stream gets an error event, if no chunk is
half sent; otherwise the connection ends in a way that shows the client that something is missing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.engines.facts import RequestClass
from penstock.limiter.client import Client
from penstock.limiter.dial import Dial
from penstock.limiter.ends import End, outcome_of, spoiled, watch_for, without_length
from penstock.limiter.framing import FramingError
from penstock.limiter.head import (
    CHUNKED,
    HEAD_LIMIT_BYTES,
    ResponseError,
    ResponseHead,
    find_end,
    parse_response,
)
from penstock.limiter.headers import client_head, engine_head, new_id, request_id
from penstock.limiter.passage import Passage
from penstock.limiter.refusal import Reason, Refused
from penstock.limiter.run import Run
from penstock.limiter.service import CONTINUE, Request
from penstock.limiter.upstream import Upstream
from penstock.limiter.usage import UsageWatch
from penstock.limiter.visit import Visit

if TYPE_CHECKING:
    from penstock.limiter.relay import Relay

JOIN_LIMIT_BYTES = 64 * 1024
SAFE_METHODS = frozenset({b"GET", b"HEAD", b"OPTIONS"})


class Exchange:
    """One request being served by the engine."""

    __slots__ = (
        "_buffer", "_client", "_close", "_dial", "_first_byte", "_passage", "_paused", "_relay", "_request",
        "_retried", "_reusable", "_route", "_shown_id", "_status", "_timer", "_upstream", "_visit", "_watch", "ended",
    )  # fmt: skip

    def __init__(self, relay: Relay, client: Client, request: Request, *, visit: Visit | None) -> None:
        """Prepare to send a request; `visit` is None for one that is not counted."""
        assert request.route is not None  # noqa: S101 - set by accept
        self._relay = relay
        self._client = client
        self._request = request
        self._route = request.route
        self._visit = visit
        self._watch: UsageWatch | None = None
        self._shown_id = request_id(request.head) or new_id()
        self._upstream: Upstream | None = None
        self._dial: Dial | None = None
        self._buffer = b""
        self._passage: Passage | None = None
        self._first_byte = self._retried = self._paused = self._close = self._reusable = False
        self._status = 0
        self.ended = False
        self._timer: asyncio.TimerHandle | None = None
        if request.route.request_class is RequestClass.READ:
            self._timer = relay.loop.call_later(relay.read_seconds, self._time_is_up)

    def start(self) -> None:
        """Send the request to the engine."""
        upstream = None if self._retried else self._relay.pool.take()
        if upstream is None:
            self._dial = self._relay.pool.open(self._send, self._unreachable)
        else:
            self._send(upstream)

    # ---- the client's side

    @property
    def begun(self) -> bool:
        """Whether the client has a byte of the answer."""
        return self._passage is not None

    def serve_instead(self, client: Client, request: Request) -> None:
        """Answer to another client, who asked the same, before the first byte."""
        self._client = client
        self._request = request

    def client_gone(self) -> None:
        """The client has left: so does the limiter, at once."""
        self._end(End.CLIENT_GONE)

    def filler(self) -> bytes:
        """Return bytes that can be sent now without changing the response; see `Job.filler`."""
        return CONTINUE if self._passage is None else self._passage.filler()

    def client_paused(self) -> None:
        """The client reads slowly: so does the limiter."""
        self._paused = True
        if self._upstream is not None:
            self._upstream.transport.pause_reading()

    def client_resumed(self) -> None:
        """The client has caught up."""
        self._paused = False
        if self._upstream is not None:
            self._upstream.transport.resume_reading()

    def cut(self, refused: Refused) -> None:
        """End the exchange for the limiter's own reasons."""
        self._fail(refused, End.CUT)

    # ---- the engine's side

    def _unreachable(self, error: OSError) -> None:
        if isinstance(error, ConnectionError):
            self._relay.engine_refused()
        refused = Refused(Reason.ENGINE_UNAVAILABLE, "The engine of this replica does not take connections.")
        self._fail(refused, End.ENGINE_UNAVAILABLE)

    def _send(self, upstream: Upstream) -> None:
        self._upstream = upstream
        upstream.requests += 1
        upstream.attach(self._read_head, self._engine_lost)
        if self._paused:
            upstream.transport.pause_reading()
        request = self._request
        head = engine_head(
            request.head,
            target=self._route.target,
            host=self._relay.engine_host,
            attempt_id=new_id(),
            body_bytes=request.body_bytes,
        )
        if request.body_bytes <= JOIN_LIMIT_BYTES:
            upstream.transport.write(b"".join((head, *request.pieces)))
        else:
            upstream.transport.writelines([head, *request.pieces])

    def _read_head(self, data: bytes) -> None:
        if not self._first_byte:
            self._first_byte = True
            self._request.release_body()
            if self._visit is not None:
                self._visit.first_byte()
        data = self._buffer + data
        try:
            while (end := find_end(data)) >= 0:
                head = parse_response(data[:end], method=self._request.head.method)
                data = data[end:]
                if head.status >= 200:
                    self._buffer = b""
                    self._begin(head, data)
                    return
                if head.status == 101:
                    raise ResponseError("it tried to switch protocols")
        except ResponseError as error:
            self._engine_failed(f"The engine did not answer in HTTP: {error}.")
            return
        self._buffer = data
        if len(data) > HEAD_LIMIT_BYTES:
            self._engine_failed("The engine's response head is too large.")

    def _begin(self, head: ResponseHead, rest: bytes) -> None:
        """Send the head to the client, with what came of the body in the same read."""
        asked, client, relay, visit = self._request.head, self._client, self._relay, self._visit
        run = client if isinstance(client, Run) else None
        shown = head
        if visit is not None:
            self._watch = watch = watch_for(visit, head)
            if watch is not None and watch.removes and head.length > 0:
                shown = without_length(head)
        unchunk = shown.length == CHUNKED and (asked.minor == 0 or run is not None)
        self._passage = passage = Passage(
            head,
            owner=self,
            sink=client.transport,
            selector=relay.loop.direct,
            traffic=relay.traffic if run is None else run.traffic,
            unchunk=unchunk,
            watch=self._watch,
        )
        self._status = head.status
        self._reusable = head.keep_alive and (head.length != CHUNKED or relay.reuse_after_stream)
        self._close = not asked.keep_alive or passage.ends_with_connection or relay.closing
        fields = () if visit is None else visit.fields
        if run is not None:
            run.begin(shown, fields)
            passage.begin(b"", rest)
        else:
            text = client_head(shown, shown_id=self._shown_id, close=self._close, unchunk=unchunk, extra=fields)
            passage.begin(text, rest)
        if self._upstream is not None:  # there is more to come
            passage.read_from(self._upstream.transport)

    def _engine_lost(self, error: Exception | None) -> None:
        upstream, self._upstream = self._upstream, None
        if self._passage is not None and self._passage.ends_with_connection and error is None:
            self._passage.input_ended()
            return
        self._relay.engine_suspect()
        reused = upstream is not None and upstream.reused
        if not self._first_byte and reused and not self._retried and self._request.head.method in SAFE_METHODS:
            self._retried = True
            self.start()
            return
        when = "before its answer was complete" if self._first_byte else "without an answer"
        self._engine_failed(f"The engine closed the connection {when}.")

    # ---- ends

    def completed(self, *, surplus: bool) -> None:
        """The client has the whole response."""
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            # an answer that came before the request was sent whole leaves the rest of it in the way
            if self._reusable and not surplus and not upstream.transport.get_write_buffer_size():
                self._relay.pool.give(upstream)
            else:
                upstream.abort()
        self._end(End.COMPLETED)
        self._client.finished(keep_alive=not self._close)

    def broke_off(self, error: FramingError) -> None:
        """The engine's body cannot be followed any further."""
        self._engine_failed(f"The engine's response broke off: {error}.")

    def _time_is_up(self) -> None:
        seconds = self._relay.read_seconds
        message = f"The engine did not complete its answer within {seconds:g} s. Try again when it is less busy."
        self._fail(Refused(Reason.ENGINE_TIMEOUT, message), End.ENGINE_TIMEOUT)

    def _engine_failed(self, message: str) -> None:
        self._fail(Refused(Reason.ENGINE_FAILED, message), End.ENGINE_FAILED)

    def _fail(self, refused: Refused, end: End) -> None:
        """End the exchange and tell the client, by the means that are left."""
        if self.ended:
            return
        passage, client = self._passage, self._client
        self._end(end)
        if passage is None:
            client.refuse(refused)
        elif farewell := passage.farewell(refused, self._route.dialect):
            client.transport.write(farewell)
            client.finished(keep_alive=False)
        else:
            client.break_off(reset=passage.end_is_close)

    def _end(self, end: End) -> None:
        """Let go of everything, once."""
        if self.ended:
            return
        self.ended = True
        self._request.release_body()
        if self._dial is not None:
            self._dial.cancel()
        if self._passage is not None:
            self._passage.close()
        self._dial = self._passage = None
        if self._timer is not None:
            self._timer.cancel()
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.abort()
        self._relay.exchange_ended(self, end, self._route.request_class)
        visit, self._visit = self._visit, None
        if visit is not None:
            cancelled = end is End.CLIENT_GONE or end is End.CUT
            served = 200 <= self._status < 400
            watch = self._watch
            if watch is not None:
                watch.end()  # an answer that broke off may have said what it used
            whole = served and end is End.COMPLETED
            if isinstance(self._client, Run):
                self._client.over(kept=whole and not spoiled(watch))
            visit.end(
                None if cancelled else outcome_of(end, status=self._status, watch=watch),
                served=served,
                whole=whole,
                watch=watch,
                left=end is End.CLIENT_GONE,
            )
