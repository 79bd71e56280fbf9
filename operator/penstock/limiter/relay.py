"""The API port: which requests are served, refused, or passed to the engine.

Order matters: path first (an unknown path is 404 at any time), then the drain, then who calls, then the body, then
whether a run is under way that the request can follow (`coalesce`), then admission. Only generation requests go through
it; reads are cheap and never limited.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from penstock.admission.connected import Connected
from penstock.api.limiter import MAXIMUM_BODY_MEBIBYTES
from penstock.engines.facts import RequestClass
from penstock.limiter.admission import Admission
from penstock.limiter.bodybudget import BodyBudget
from penstock.limiter.client import Client
from penstock.limiter.coalesce import KEY_HEADER, Coalescing
from penstock.limiter.ends import End
from penstock.limiter.exchange import Exchange
from penstock.limiter.head import RequestHead
from penstock.limiter.identity import Identity
from penstock.limiter.loop import Loop
from penstock.limiter.passage import Traffic
from penstock.limiter.path import Router, normalise
from penstock.limiter.reception import RETRY_COUNT_HEADER
from penstock.limiter.refusal import Dialect, Reason, Refused, dialect_of
from penstock.limiter.run import Run
from penstock.limiter.service import MEBIBYTE_BYTES, Request
from penstock.limiter.turn import Turn
from penstock.limiter.upstream import Pool
from penstock.limiter.visit import Visit

if TYPE_CHECKING:
    from penstock.limiter.connection import Connection

logger = logging.getLogger(__name__)

EARLY_BODY_BYTES = 64 * 1024
"""Bodies above this are not read while the request would be refused anyway."""

RUN_HEADERS = frozenset({KEY_HEADER, RETRY_COUNT_HEADER})
"""Without one of these a request has nothing to do with any run."""


class Relay:
    """The service behind the API port.

    Attributes:
        loop: Where exchanges run.
        pool: Connections to the engine.
        admission: Who may go to the engine.
        budget: Memory of all request bodies.
        connections: Open client connections.
        exchanges: Requests at the engine, of both classes.
        ends: How many exchanges ended, by class and end.
        refusals: How many requests were refused, by reason.
        traffic: Counts what is sent to clients and not by a lane.
        coalescing: Lets requests that are one be served by one run.
        reuse_after_stream: Whether the engine keeps a connection open after an answer in chunks.
        read_seconds: How long the engine may take for a read request.
        body_limit_bytes: Largest request body.
        admits: Whether requests are taken.
        closing: Whether every response ends its connection, so that clients connect to another replica.
        on_refused: Called when the engine refuses a connection.
        on_suspect: Called when the engine ends a connection that was in use.
    """

    def __init__(
        self,
        *,
        loop: Loop,
        pool: Pool,
        admission: Admission,
        budget: BodyBudget,
        allowed_paths: Mapping[str, RequestClass],
        reuse_after_stream: bool,
        read_seconds: float,
    ) -> None:
        self.loop = loop
        self.pool = pool
        self.admission = admission
        self.budget = budget
        self.connections: set[Connection] = set()
        self.exchanges: set[Exchange] = set()
        self.ends: dict[tuple[RequestClass, End], int] = {(kind, end): 0 for kind in RequestClass for end in End}
        self.refusals: dict[Reason, int] = dict.fromkeys(Reason, 0)
        self.traffic = Traffic()
        self.reuse_after_stream = reuse_after_stream
        self.read_seconds = read_seconds
        self.engine_host = f"{pool.host}:{pool.port}".encode()
        self.body_limit_bytes = MAXIMUM_BODY_MEBIBYTES * MEBIBYTE_BYTES
        self.admits = True
        self.closing = False
        self.on_refused: Callable[[], None] | None = None
        self.on_suspect: Callable[[], None] | None = None
        self._router = Router(allowed_paths)
        self.coalescing = Coalescing(self)

    @property
    def bytes_sent(self) -> int:
        """Response body bytes sent to clients."""
        return self.traffic.bytes_sent + self.loop.direct.lane_bytes

    def dialect(self, head: RequestHead) -> Dialect:
        """Return whose error shape the client expects."""
        try:
            return dialect_of(normalise(head.target.partition(b"?")[0]))
        except Refused:
            return Dialect.OPENAI

    def make_room(self) -> bool:
        """Never: what is idle now may be asked something the next moment."""
        return False

    def connect(self, peer: str) -> Connected | Refused | None:
        """Count a connection; see `Service.connect`."""
        return self.admission.connect(peer)

    def accept(self, request: Request, peer: str) -> None:
        """Decide by the head alone; see `Service.accept`."""
        head = request.head
        request.route = found = self._router.route(head.target, head.method)
        if not self.admits:
            raise _draining()
        if found.request_class is RequestClass.GENERATION:
            request.caller = caller = self.admission.reception.identify(head, peer)
            if head.length > EARLY_BODY_BYTES and not self.coalescing.expects(request):
                self.admission.expect(caller, head, route=found)

    def serve(self, connection: Connection, request: Request) -> None:
        """Pass a complete request to the engine, now or when its turn comes."""
        if not self.admits:  # the drain may have begun while the body came
            connection.refuse(_draining())
            return
        client: Client | None = connection
        if request.caller is not None and not RUN_HEADERS.isdisjoint(request.head.values):
            try:
                client = self.coalescing.serve(connection, request)
            except Refused as refused:
                connection.refuse(refused)
                return
        if client is not None and (asked := client.request) is not None:
            if asked.caller is None:
                self._go(client, asked, None)
            else:
                self._admit(client, asked, asked.caller)

    def _admit(self, client: Client, request: Request, caller: Identity) -> None:
        """Let a request go to the engine for its client, or wait."""
        assert request.route is not None  # noqa: S101 - set by accept
        try:
            visit = self.admission.admit(request, request.route, caller)
        except Refused as refused:
            client.refuse(refused)
            return
        self.coalescing.note(client, request, visit.mark)
        if visit.permit is not None:
            self._go(client, request, visit)
            return
        request.job = turn = Turn(client, request, visit, go=self._go, left=self.admission.room.client_left)
        self.admission.wait(turn)

    def _go(self, client: Client, request: Request, visit: Visit | None) -> None:
        exchange = Exchange(self, client, request, visit=visit)
        request.job = exchange
        self.exchanges.add(exchange)
        if isinstance(client, Run):
            client.at_engine = True
        if client.stalled:  # since it waited for its turn
            exchange.client_paused()
        exchange.start()

    def count_refusal(self, refused: Refused) -> None:
        """Note that a request was refused."""
        self.refusals[refused.reason] += 1
        logger.debug("refused reason=%s message=%r", refused.reason, refused.message)

    def exchange_ended(self, exchange: Exchange, end: End, request_class: RequestClass) -> None:
        """Forget an exchange."""
        self.exchanges.discard(exchange)
        self.ends[request_class, end] += 1

    def engine_refused(self) -> None:
        """The engine refused a connection: it is certainly not there."""
        if self.on_refused is not None:
            self.on_refused()

    def engine_suspect(self) -> None:
        """The engine ended a connection in use: somebody should look."""
        if self.on_suspect is not None:
            self.on_suspect()

    def cut_all(self, reason: Reason, message: str) -> None:
        """End every exchange, and every request that waits, with an error."""
        self.admission.room.refuse_all(Refused(reason, message))
        for exchange in list(self.exchanges):
            exchange.cut(Refused(reason, message))


def _draining() -> Refused:
    return Refused(Reason.DRAINING, "This replica is going away. Send the request again; another one takes it.")
