"""One client connection: requests are read one after the other and handed to a service.

Theory of operation. A connection is in one phase:

    IDLE -> HEAD -> BODY -> SERVING -> IDLE ...          ENDING: answered for the last time, input is thrown away

A request reaches the service only when its body is complete, so slow senders cost nobody a permit and a body cut short
never reaches the engine. Refusals that need no body come right after the head. Such an answer ends the connection, but
not before the client had time to read it (`ending`).

Requests that arrive while one is served wait in the intake. When it overruns, the connection ends after the current
answer: reading goes on while a request is served, because only reading shows that a client has left. Between requests
a client that has not read its answers is not read from either, so it cannot make the limiter collect answers.

A client that ends its sending side may have left or may still be reading: `halfclose` finds out. HTTP/1.0 gives it no
means to; there the end of sending is taken as leaving, as reverse proxies that speak it mean it.
"""

from __future__ import annotations

import asyncio
import random
from enum import Enum, auto

from penstock.limiter import tcp
from penstock.limiter.bodybudget import STEP_BYTES
from penstock.limiter.deadline import Deadline
from penstock.limiter.ending import Ending
from penstock.limiter.entry import Entry
from penstock.limiter.halfclose import HalfClosed
from penstock.limiter.head import RequestHead
from penstock.limiter.headers import own_response
from penstock.limiter.intake import Intake
from penstock.limiter.refusal import Dialect, Reason, Refused, error_object, refusal_headers
from penstock.limiter.service import CONTINUE, PIECE_OVERHEAD_BYTES, Job, Request, Service, Times
from penstock.limiter.transport import Transport


class Phase(Enum):
    """What the connection waits for."""

    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    SERVING = auto()
    ENDING = auto()
    CLOSED = auto()


_IDLE, _HEAD, _BODY, _SERVING, _ENDING, _CLOSED = Phase  # found in a class they take ten times as long


class Connection(asyncio.Protocol):
    """The server side of HTTP/1.1 on one transport.

    Attributes:
        transport: Where responses are written.
        request: The request being read or served.
        since: When it began.
        stalled: Whether bytes wait for a client that reads slowly.
        closed: Set when the transport has ended.
    """

    transport: Transport
    _ending: Ending
    _entry: Entry
    _peer: str

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop, times: Times) -> None:
        self.request: Request | None = None
        self.since = loop.time()
        self.closed = asyncio.Event()
        self._service = service
        self._loop = loop
        self._times = times
        self._phase = _IDLE
        self._intake = Intake(service.budget)
        self._pumping = False
        self._input_ended = False
        self.stalled = False
        self._deadline = Deadline(loop, self._time_is_up)

    # ---- transport callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        assert isinstance(transport, Transport)  # noqa: S101 - nobody else makes connections
        self.transport = transport
        self._ending = Ending(self.transport, self._deadline, loop=self._loop, times=self._times)
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if peer else ""
        self._service.connections.add(self)
        self._entry = Entry(self._service.connect(self._peer), transport, self._loop)
        self._deadline.set(self._times.idle_seconds if self._entry.refused is None else self._times.head_seconds)

    def data_received(self, data: bytes) -> None:
        """Take what the client sent."""
        phase = self._phase
        if phase is _BODY:
            self._feed_body(data)
        elif phase is _SERVING:
            self._intake.hold(data)
            return
        elif phase is _ENDING:
            self._ending.heard()
            return
        elif phase is not _CLOSED:
            try:
                self._make_room(len(data))
                self._intake.add(data)
            except Refused as refused:
                self.refuse(refused)
                return
        self._pump()

    def eof_received(self) -> bool:
        """The client sends no more; return whether to keep the transport for writing."""
        self._input_ended = True
        if self._phase is _SERVING:
            if self._job is None or (self.request is not None and self.request.head.minor == 0):
                self.transport.abort()
                return False
            HalfClosed(self.transport, self._loop, self._filler)
            return True
        self._pump()
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        """Tell whoever serves the client that it is gone."""
        self._phase = _CLOSED
        self.closed.set()
        self._deadline.close()
        self._entry.end()
        self._intake.clear()
        self._service.budget.ended(self)
        self._service.connections.discard(self)
        request, self.request = self.request, None
        if request is not None:
            request.release_body()
            if request.job is not None:
                request.job.client_gone()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self.stalled = True
        if self._phase is _SERVING:
            self._ending.watch()
            if self._job is not None:
                self._job.client_paused()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.stalled = False
        if self._phase is _IDLE:
            if not self._input_ended:
                self.transport.resume_reading()
            self._await_request()
        elif self._phase is _SERVING:
            self._deadline.clear()
            if self._job is not None:
                self._job.client_resumed()

    # ---- what services call

    @property
    def gone(self) -> bool:
        """Whether the client has left or stopped sending, as far as can be seen now."""
        return self._input_ended or tcp.is_dead(self.transport)

    def answer(self, status: int, fields: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Send a complete response of the limiter's own to the request being read or served.

        A request that was not read to its end is the connection's last: what is left of it is thrown away.
        """
        head = None if self.request is None else self.request.head
        keep = head is not None and head.keep_alive and self._phase is _SERVING and not self._service.closing
        keep = keep and self._entry.refused is None
        head_only = head is not None and head.method == b"HEAD"
        self.transport.write(own_response(status, fields, body, close=not keep, head_only=head_only))
        self.finished(keep_alive=keep)

    def refuse(self, refused: Refused) -> None:
        """Answer with an error; see `answer`."""
        self._service.count_refusal(refused)
        dialect = Dialect.OPENAI if self.request is None else self._service.dialect(self.request.head)
        fields, body = refusal_headers(refused, jitter=random.random()), error_object(refused, dialect)
        self.answer(refused.status, fields, body)

    def finished(self, *, keep_alive: bool) -> None:
        """The response is written: read the next request, or end the connection."""
        request, self.request = self.request, None
        if request is not None:
            request.release_body()
            request.job = None
        if self._phase is not _SERVING:  # its body may have been on its way
            self._service.budget.ended(self)
        if self._phase is _CLOSED or self.transport.is_closing():
            return
        if not keep_alive or self._intake.overrun:
            self._linger()
            return
        self._phase = _IDLE
        if not self.stalled:
            self._await_request()
            return
        if not self._input_ended:
            self.transport.pause_reading()
        self._ending.watch()

    def give_up_body(self) -> None:
        """Make room for other bodies; see `BodyBudget`."""
        message = "The request body comes too slowly, and there is no memory left for others. Send it again."
        self.refuse(Refused(Reason.OVERLOADED, message))

    def break_off(self, *, reset: bool) -> None:
        """End the connection within an answer; `reset` where an orderly end would look like the answer's."""
        if reset:
            tcp.reset(self.transport)
        else:
            self.leave()

    def leave(self) -> None:
        """End the connection without another word, once what was written is sent."""
        self._phase = _ENDING
        self._intake.clear()
        self._ending.close()

    # ---- reading

    def _await_request(self) -> None:
        self._deadline.set(self._times.idle_seconds)
        if self._intake.buffer or self._input_ended:
            self._pump()

    def _pump(self) -> None:
        """Read as many requests as the buffer holds. A loop, so that pipelined requests never nest."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._intake.buffer and self._may_read() and self._read_head():
                pass
            if self._input_ended and self._phase in (_HEAD, _BODY):
                self.refuse(Refused(Reason.BAD_REQUEST, "The request ended before it was complete."))
            elif self._input_ended and self._phase is _IDLE and not self.stalled:
                self.leave()
        finally:
            self._pumping = False

    def _may_read(self) -> bool:
        if self.transport.is_closing():  # a refusal would change nothing any more, and be repeated for ever
            return False
        return self._phase is _HEAD or (self._phase is _IDLE and not self.stalled)

    def _read_head(self) -> bool:
        """Take one head off the intake; False when it is not complete."""
        begins = self._phase is _IDLE
        try:
            if begins and not self._intake.has_begun():
                return False
            self._phase = _HEAD
            head = self._intake.take_head()
        except Refused as refused:
            self.refuse(refused)
            return True
        if head is None:
            if begins:
                self._deadline.set(self._times.head_seconds)
            return False
        if self._accept(head):
            if self._intake.buffer:
                self._feed_body(self._intake.take_all())
            if self._phase is _BODY:  # there is more to come
                self._body_came_on()
        return True

    def _accept(self, head: RequestHead) -> bool:
        """Decide by the head; return whether a body is to be read."""
        self.request = request = Request(head, self._service.budget)
        try:
            self._service.accept(request, self._peer)
            if self._entry.refused is not None:
                self._entry.check(request)
            request.check_length(limit_bytes=self._service.body_limit_bytes)
        except Refused as refused:
            if request.complete:
                self._phase = _SERVING
            self.refuse(refused)
            return False
        if request.complete:
            self._serve()
            return False
        self._phase = _BODY
        if head.expects_continue and not self._intake.buffer:
            self.transport.write(CONTINUE)
        return True

    def _feed_body(self, data: bytes) -> None:
        request = self.request
        assert request is not None  # noqa: S101 - set by _accept
        steps = request.body_bytes // STEP_BYTES
        self._make_room(len(data) + PIECE_OVERHEAD_BYTES)
        try:
            used = request.feed(data, limit_bytes=self._service.body_limit_bytes)
        except Refused as refused:
            self.refuse(refused)
            return
        if request.complete:
            if used < len(data):
                self._intake.hold(data[used:])
            self._service.budget.ended(self)
            self._serve()
        elif request.body_bytes // STEP_BYTES != steps:
            self._body_came_on()

    def _make_room(self, size: int) -> None:
        budget = self._service.budget
        if budget.held_bytes + size > budget.limit_bytes:
            budget.make_room(size, self._loop.time(), spared=self)

    def _body_came_on(self) -> None:
        self._service.budget.came_on(self, self._loop.time())
        self._deadline.set(self._times.body_step_seconds)

    def _serve(self) -> None:
        assert self.request is not None  # noqa: S101 - set by _accept
        self._phase = _SERVING
        self._deadline.clear()
        self._service.serve(self, self.request)
        if self.stalled and self._phase is _SERVING:  # since `100 Continue`
            self.pause_writing()

    # ---- leaving

    @property
    def _job(self) -> Job | None:
        return None if self.request is None else self.request.job

    def _filler(self) -> bytes | None:
        """Return what a client that stopped sending can be sent; None when no request is served any more."""
        return self._job.filler() if self._phase is _SERVING and self._job is not None else None

    def _linger(self) -> None:
        if self._input_ended:
            self.leave()
            return
        self._phase = _ENDING
        self._intake.clear()
        self._ending.linger()

    def _time_is_up(self) -> None:
        if self._phase is _IDLE and not self.stalled:
            self.leave()
        elif self._phase in (_HEAD, _BODY):
            self.refuse(Refused(Reason.REQUEST_TIMEOUT, "The request did not arrive in time."))
        else:
            self._ending.look()
