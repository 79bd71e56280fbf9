"""What a connection and the service behind it know of each other."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.admission.connected import Connected
from penstock.limiter.bodybudget import BodyBudget
from penstock.limiter.framing import FramingError, body_of
from penstock.limiter.head import RequestHead
from penstock.limiter.identity import Identity
from penstock.limiter.path import Route
from penstock.limiter.refusal import Dialect, Reason, Refused

if TYPE_CHECKING:
    from penstock.limiter.connection import Connection
    from penstock.limiter.trace import Trace


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
MEBIBYTE_BYTES = 1024 * 1024
BLOCK_BYTES = 1024 * 1024
"""Pieces of a large body are put together to blocks of this size. As small pieces all of them would lie in the heap,
which never gets smaller again as long as anything lives at its end: the memory would be paid for a second time when the
whole body is put together. A block is mapped on its own and goes back to the system."""
PIECE_OVERHEAD_BYTES = 64  # a body that drips in costs more than its bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long connections wait, in seconds.

    Attributes:
        idle_seconds: Between requests; above the idle times of common load balancers (60 s), so that they close first.
        head_seconds: From a head's first byte to its last.
        body_step_seconds: For each `STEP_BYTES` of a body, and for the rest of it.
        write_stall_seconds: Without a byte taken by a client that has a full buffer waiting.
        linger_seconds: For a client that is still sending after its answer, in all.
        linger_silence_seconds: The same, without a byte.
        question_seconds: Of silence before the kernel asks whether the client is still there, and between questions.
        engine_read_seconds: For the engine to complete the answer to a read, which should take it milliseconds.
    """

    idle_seconds: float = 75.0
    head_seconds: float = 10.0
    body_step_seconds: float = 30.0
    write_stall_seconds: float = 60.0
    linger_seconds: float = 30.0
    linger_silence_seconds: float = 2.0
    question_seconds: int = 15
    engine_read_seconds: float = 10.0


class Job(Protocol):
    """What is done for a request; told what happens to its client."""

    def client_gone(self) -> None:
        """The connection has ended."""

    def filler(self) -> bytes:
        """Return bytes that can be sent now without changing the response; empty when there are none."""
        ...

    def client_paused(self) -> None:
        """Write no more for now."""

    def client_resumed(self) -> None:
        """Write on."""


class Request:
    """One request while it is read and served.

    Attributes:
        head: Its head.
        route: Where it goes; set once it was accepted.
        caller: Who sent it; set once it was accepted, where that matters.
        complete: Whether the whole body is there.
        pieces: Its body as it came, without chunk frames.
        body_bytes: Length of that body.
        job: What serves it, if that takes time.
        trace: By which it is found while it is served.
    """

    __slots__ = (
        "_blocks", "_body", "_budget", "_held", "_loose_bytes", "body_bytes", "caller", "complete", "head", "job",
        "pieces", "route", "trace",
    )  # fmt: skip

    def __init__(self, head: RequestHead, budget: BodyBudget) -> None:
        self.head = head
        self.route: Route | None = None
        self.caller: Identity | None = None
        self.pieces: list[bytes] = []
        self.body_bytes = 0
        self.job: Job | None = None
        self.trace: Trace | None = None
        self._body = body_of(head.length)
        self.complete = self._body.done
        self._budget = budget
        self._held = 0
        self._blocks = self._loose_bytes = 0

    def check_length(self, *, limit_bytes: int) -> None:
        """Compare what is known of the length with the limit.

        Raises:
            Refused: the body is larger.
        """
        if max(self.head.length, self.body_bytes) > limit_bytes:
            message = f"The request body is larger than {limit_bytes // MEBIBYTE_BYTES} MiB."
            raise Refused(Reason.BODY_TOO_LARGE, message)

    def feed(self, data: bytes, *, limit_bytes: int) -> int:
        """Take one read; return how many bytes of it belong to the body.

        Raises:
            Refused: the body is malformed or larger than the limit, or there is no memory for it.
        """
        payload: list[bytes] = []
        try:
            used = self._body.feed(data, payload.append)
        except FramingError as error:
            raise Refused(Reason.BAD_REQUEST, f"The request body is malformed: {error}.") from None
        self.complete = self._body.done
        self._store(b"".join(payload))
        if self.body_bytes > limit_bytes:
            self.check_length(limit_bytes=limit_bytes)
        return used

    def _store(self, piece: bytes) -> None:
        cost = len(piece) + PIECE_OVERHEAD_BYTES
        if not self._budget.take(cost):
            raise Refused(Reason.OVERLOADED, "Too many request bodies are being read at the moment.")
        self._held += cost
        self.body_bytes += len(piece)
        self.pieces.append(piece)
        self._loose_bytes += len(piece)
        if self._loose_bytes >= BLOCK_BYTES:
            self.pieces[self._blocks :] = [b"".join(self.pieces[self._blocks :])]
            self._blocks, self._loose_bytes = len(self.pieces), 0

    def whole_body(self) -> bytes:
        """Return the complete body in one piece."""
        if len(self.pieces) != 1:
            self.pieces = [b"".join(self.pieces)]
        return self.pieces[0]

    def replace_body(self, body: bytes) -> None:
        """Send another body than the client's."""
        self.pieces = [body]
        self.body_bytes = len(body)

    def hand_over(self) -> Request:
        """Return the same request as one of its own, with the body, which this one has no more.

        A connection lets go of its request when its client leaves; what is handed over others can wait for.
        """
        other = copy.copy(self)
        other.job = None
        self._held = 0
        self.pieces = []
        return other

    def release_body(self) -> None:
        """Let go of the body and its memory; harmless when repeated."""
        if self._held:
            self._budget.give(self._held)
            self._held = 0
        self.pieces = []


class Service(Protocol):
    """Answers the requests of a port."""

    connections: set[Connection]
    budget: BodyBudget

    @property
    def body_limit_bytes(self) -> int:
        """Largest body."""
        ...

    @property
    def closing(self) -> bool:
        """Whether every response ends its connection."""
        ...

    def dialect(self, head: RequestHead) -> Dialect:
        """Return whose error shape the client of this request expects."""
        ...

    def make_room(self) -> bool:
        """Say whether one more connection may be taken though there are too many; ends another for it."""
        ...

    def connect(self, peer: str) -> Connected | Refused | None:
        """Take note of a new connection; `Refused` when its generation requests are to be refused.

        Args:
            peer: Address of its other side.
        """
        ...

    def accept(self, request: Request, peer: str) -> None:
        """Decide by the head alone, and set the request's route and caller.

        Args:
            request: A request whose body is still to be read.
            peer: Address of the other side of its connection.

        Raises:
            Refused: the body is not wanted.
        """
        ...

    def serve(self, connection: Connection, request: Request) -> None:
        """Serve a complete request; ends with `connection.finished`, directly or through `answer` and `refuse`."""
        ...

    def count_refusal(self, refused: Refused) -> None:
        """Note that a request was refused."""
        ...
