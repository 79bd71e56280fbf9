"""One client connection: requests are read one after the other and handed to a service.

Theory of operation. A connection is in one phase:

    IDLE -> HEAD -> BODY -> SERVING -> IDLE ...          LINGER: answered for the last time, input is thrown away

A request reaches the service only when its body is complete, so slow senders cost nobody a permit and a body cut short
never reaches the engine. Refusals that need no body come right after the head. Such an answer ends the connection, but
not before the client had time to read it: the limiter stops sending and reads on for a while (closing at once would
make the kernel reset the connection and could destroy the answer on its way).

Requests that arrive while one is served wait in the intake. When it overruns, the connection ends after the current
answer: reading goes on in any case, because only reading shows that a client has left.

A client that ends its sending side may have left or may still be reading: `halfclose` finds out. HTTP/1.0 gives it no
means to; there the end of sending is taken as leaving, as reverse proxies that speak it mean it.
"""

from __future__ import annotations

import asyncio
import random
from enum import Enum, auto
from typing import cast

from penstock.limiter import tcp
from penstock.limiter.deadline import Deadline
from penstock.limiter.framing import Body, FramingError, body_of
from penstock.limiter.halfclose import HalfClosed
from penstock.limiter.head import RequestHead
from penstock.limiter.headers import own_response
from penstock.limiter.intake import Intake
from penstock.limiter.refusal import Dialect, Reason, Refused, error_object, refusal_headers
from penstock.limiter.service import CONTINUE, Request, Service, Times


class Phase(Enum):
    """What the connection waits for."""

    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    SERVING = auto()
    LINGER = auto()
    CLOSED = auto()


class Connection(asyncio.Protocol):
    """The server side of HTTP/1.1 on one transport.

    Attributes:
        transport: Where responses are written.
        request: The request being read or served.
        closed: Set when the transport has ended.
    """

    transport: asyncio.Transport

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop, times: Times) -> None:
        self.request: Request | None = None
        self.closed = asyncio.Event()
        self._service = service
        self._loop = loop
        self._times = times
        self._phase = Phase.IDLE
        self._intake = Intake()
        self._body: Body | None = None
        self._pumping = False
        self._input_ended = False
        self._unsent = 0
        self._linger_until = 0.0
        self._deadline = Deadline(loop, self._time_is_up)

    # ---- transport callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's has the methods, not the base class
        tcp.bound_memory(self.transport)
        self._service.connections.add(self)
        self._deadline.set(self._times.idle_seconds)

    def data_received(self, data: bytes) -> None:
        """Take what the client sent."""
        phase = self._phase
        if phase is Phase.BODY:
            self._feed_body(data)
        elif phase is Phase.SERVING:
            self._intake.hold(data)
            return
        elif phase is Phase.LINGER:
            if not self.transport.get_write_buffer_size():
                self._deadline.set(min(self._times.linger_silence_seconds, self._linger_until - self._loop.time()))
            return
        elif phase is not Phase.CLOSED:
            self._intake.add(data)
        self._pump()

    def eof_received(self) -> bool:
        """The client sends no more; return whether to keep the transport for writing."""
        self._input_ended = True
        if self._phase is Phase.SERVING:
            request = self.request
            if request is None or request.job is None or request.head.minor == 0:
                self.transport.abort()
                return False
            HalfClosed(self.transport, self._loop, self._filler)
            return True
        if self._phase in (Phase.HEAD, Phase.BODY):
            self._cut_short()
            return not self.transport.is_closing()
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        """Tell whoever serves the client that it is gone."""
        self._phase = Phase.CLOSED
        self.closed.set()
        self._deadline.close()
        self._service.connections.discard(self)
        request, self.request = self.request, None
        if request is not None:
            request.release_body()
            if request.job is not None:
                request.job.client_gone()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self._unsent = self.transport.get_write_buffer_size()
        if self._phase is Phase.SERVING:
            self._deadline.set(self._times.write_stall_seconds)
        if self.request is not None and self.request.job is not None:
            self.request.job.client_paused()

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self._phase is Phase.SERVING:
            self._deadline.clear()
        if self.request is not None and self.request.job is not None:
            self.request.job.client_resumed()

    # ---- what services call

    def answer(self, status: int, fields: list[tuple[bytes, bytes]], body: bytes, *, close: bool = False) -> None:
        """Send a complete response of the limiter's own to the request that is served."""
        request = self.request
        assert request is not None  # noqa: S101 - only a served request is answered
        keep = request.head.keep_alive and not close and not self._service.closing
        head_only = request.head.method == b"HEAD"
        self.transport.write(own_response(status, fields, body, close=not keep, head_only=head_only))
        self.finished(keep_alive=keep)

    def refuse(self, refused: Refused, *, dialect: Dialect = Dialect.OPENAI) -> None:
        """Answer the request being read or served with an error; what is not read yet of it is thrown away."""
        self._service.count_refusal(refused)
        request = self.request
        keep = False
        if self._phase is Phase.SERVING and request is not None:  # it was read to its end
            keep = request.head.keep_alive and not self._service.closing
        head_only = request is not None and request.head.method == b"HEAD"
        fields, body = refusal_headers(refused, jitter=random.random()), error_object(refused, dialect)
        self.transport.write(own_response(refused.status, fields, body, close=not keep, head_only=head_only))
        self.finished(keep_alive=keep)

    def finished(self, *, keep_alive: bool) -> None:
        """The response is written: read the next request, or end the connection."""
        request, self.request = self.request, None
        if request is not None:
            request.release_body()
            request.job = None
        self._body = None
        if self._phase is Phase.CLOSED or self.transport.is_closing():
            return
        if not keep_alive or self._intake.overrun:
            self._linger()
            return
        self._phase = Phase.IDLE
        self._deadline.set(self._times.idle_seconds)
        self._pump()

    # ---- reading

    def _pump(self) -> None:
        """Read as many requests as the buffer holds. A loop, so that pipelined requests never nest."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._phase in (Phase.IDLE, Phase.HEAD) and self._intake and self._read_head():
                pass
            if self._input_ended and self._phase in (Phase.HEAD, Phase.BODY):
                self._cut_short()
            elif self._input_ended and self._phase is Phase.IDLE:
                self.transport.close()
        finally:
            self._pumping = False

    def _read_head(self) -> bool:
        """Take one head off the intake; False when it is not complete."""
        begins = self._phase is Phase.IDLE
        if begins:
            if not self._intake.has_begun():
                return False
            self._phase = Phase.HEAD
        try:
            head = self._intake.take_head()
        except Refused as refused:
            self.refuse(refused)
            return True
        if head is None:
            if begins:
                self._deadline.set(self._times.head_seconds)
            return False
        if self._accept(head):
            if self._intake:
                self._feed_body(self._intake.take_all())
            else:
                self._deadline.set(self._times.body_stall_seconds)
        return True

    def _accept(self, head: RequestHead) -> bool:
        """Decide by the head; return whether a body is to be read."""
        self.request = request = Request(head, self._service.budget)
        try:
            request.route = self._service.accept(head)
            if head.length > self._service.body_limit_bytes:
                raise self._too_large()
        except Refused as refused:
            if head.length == 0:
                self._phase = Phase.SERVING
                self._deadline.clear()
            self.refuse(refused, dialect=self._service.dialect(head))
            return False
        if head.length == 0:
            self._serve()
            return False
        self._phase = Phase.BODY
        self._body = body_of(head.length)
        if head.expects_continue and not self._intake:
            self.transport.write(CONTINUE)
        return True

    def _feed_body(self, data: bytes) -> None:
        request, body = self.request, self._body
        assert request is not None  # noqa: S101 - there is one in phase BODY
        assert body is not None  # noqa: S101
        try:
            pieces: list[bytes] = []
            used = body.feed(data, pieces.append)
            request.store(b"".join(pieces))
            if request.body_bytes > self._service.body_limit_bytes:
                raise self._too_large()
        except FramingError as error:
            malformed = Refused(Reason.BAD_REQUEST, f"The request body is malformed: {error}.")
            self.refuse(malformed, dialect=self._service.dialect(request.head))
            return
        except Refused as refused:
            self.refuse(refused, dialect=self._service.dialect(request.head))
            return
        if body.done:
            self._intake.add(data[used:])
            self._serve()
        else:
            self._deadline.set(self._times.body_stall_seconds)

    def _serve(self) -> None:
        assert self.request is not None  # noqa: S101 - set by _accept
        self._phase = Phase.SERVING
        self._deadline.clear()
        self._service.serve(self, self.request)

    def _cut_short(self) -> None:
        request = self.request
        dialect = Dialect.OPENAI if request is None else self._service.dialect(request.head)
        self.refuse(Refused(Reason.BAD_REQUEST, "The request ended before it was complete."), dialect=dialect)

    def _too_large(self) -> Refused:
        limit = self._service.body_limit_bytes // (1024 * 1024)
        return Refused(Reason.BODY_TOO_LARGE, f"The request body is larger than {limit} MiB.")

    # ---- leaving

    def _filler(self) -> bytes | None:
        """Return what a client that stopped sending can be sent; None when no request is served any more."""
        request = self.request
        if self._phase is not Phase.SERVING or request is None or request.job is None:
            return None
        return request.job.filler()

    def _linger(self) -> None:
        self._phase = Phase.LINGER
        self._intake.clear()
        if self._input_ended:
            self.transport.close()
            return
        self.transport.write_eof()
        self._unsent = self.transport.get_write_buffer_size()
        self._linger_until = self._loop.time() + self._times.linger_seconds
        self._deadline.set(self._times.write_stall_seconds if self._unsent else self._times.linger_silence_seconds)

    def _time_is_up(self) -> None:
        if self._phase is Phase.IDLE:
            self.transport.close()
        elif self._phase in (Phase.HEAD, Phase.BODY):
            self.refuse(Refused(Reason.REQUEST_TIMEOUT, "The request did not arrive in time."))
        elif self._phase in (Phase.SERVING, Phase.LINGER) and self._reads_on():
            self._deadline.set(self._times.write_stall_seconds)
        else:
            self.transport.abort()

    def _reads_on(self) -> bool:
        """Return whether the slow client has taken anything since the last look."""
        before, self._unsent = self._unsent, self.transport.get_write_buffer_size()
        return self._unsent < before
