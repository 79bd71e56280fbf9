"""The admin port: probes, drain, metrics, state, and pushes of limits.

kubelet reaches the engine only through here: the engine listens on loopback, and its health, its start and its end are
the limiter's to judge. None of these paths touches the engine; they answer from what is known.

Whoever holds all connections of this port must not keep a probe from its answer: the engine would be restarted for it.
So one connection too many takes the place of the oldest that is not draining the replica. A probe is sent and answered
within a moment, and is never the oldest.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.api.push import LIMITS_PATH, PUSH_LIMIT_BYTES, STATUSES
from penstock.api.replica import DRAIN_TOKEN_HEADER
from penstock.engines.facts import RequestClass
from penstock.limiter.bodybudget import BodyBudget
from penstock.limiter.head import RequestHead
from penstock.limiter.path import Route, route
from penstock.limiter.refusal import Dialect, Reason, Refused
from penstock.limiter.service import CONTINUE, Request

if TYPE_CHECKING:
    from penstock.limiter.connection import Connection
    from penstock.limiter.limiter import Limiter

WRONG_TOKEN_SECONDS = 1.0
BODIES_LIMIT_BYTES = 4 * PUSH_LIMIT_BYTES
"""All request bodies that are being read at the same time."""

_TEXT = [(b"Content-Type", b"text/plain; charset=utf-8")]
_JSON = [(b"Content-Type", b"application/json")]
_METRICS = [(b"Content-Type", b"text/plain; version=0.0.4; charset=utf-8")]

Handler = Callable[["Connection", Request], None]


class Admin:
    """The service behind the admin port.

    Attributes:
        connections: Open connections.
        budget: Memory of request bodies.
        rejected_tokens: Calls of `/drain` with a wrong token.
    """

    def __init__(self, limiter: Limiter, *, token_sha256: str, loop: asyncio.AbstractEventLoop) -> None:
        self.connections: set[Connection] = set()
        self.budget = BodyBudget(BODIES_LIMIT_BYTES)
        self.rejected_tokens = 0
        self._limiter = limiter
        self._token_sha256 = token_sha256
        self._loop = loop
        self._handlers: dict[str, Handler] = {
            "/healthz": lambda connection, _: connection.answer(200, _TEXT, b"ok\n"),
            "/readyz": self._readyz,
            "/engine/started": self._engine_started,
            "/engine/alive": self._engine_alive,
            "/engine/metrics": self._engine_metrics,
            "/drain": self._drain,
            "/metrics": lambda connection, _: connection.answer(200, _METRICS, limiter.metrics.render()),
            "/state": self._state,
        }
        self._allowed = dict.fromkeys(self._handlers, RequestClass.READ)
        self._handlers[LIMITS_PATH] = self._limits

    @property
    def body_limit_bytes(self) -> int:
        """Largest request body; only a push has one."""
        return PUSH_LIMIT_BYTES

    @property
    def closing(self) -> bool:
        """Probes may keep their connections at any time."""
        return False

    def dialect(self, _head: RequestHead) -> Dialect:
        """One shape for all."""
        return Dialect.OPENAI

    def make_room(self) -> bool:
        """End the oldest connection; not one that drains. See `Service.make_room`."""
        found = [one for one in self.connections if not _drains(one)]
        if not found:
            return False
        oldest = min(found, key=lambda one: one.since)
        self.connections.discard(oldest)  # now: its transport tells of its end later
        oldest.transport.abort()
        return True

    def connect(self, _peer: str) -> None:
        """Probes are never limited."""

    def accept(self, request: Request, _peer: str) -> None:
        """Find the handler's path; see `Service.accept`."""
        head = request.head
        if head.target == LIMITS_PATH.encode():
            if head.method != b"PUT":
                raise Refused(Reason.METHOD_NOT_ALLOWED, f"{LIMITS_PATH} takes PUT.", allow=("PUT",))
            request.route = Route(LIMITS_PATH, head.target, RequestClass.READ, Dialect.OPENAI)
            return
        try:
            request.route = route(head.target, head.method, self._allowed)
        except Refused as refused:
            if refused.reason is Reason.UNKNOWN_PATH:
                message = f"There is no such path here, only {', '.join(self._handlers)}."
                raise Refused(refused.reason, message) from None
            raise

    def serve(self, connection: Connection, request: Request) -> None:
        """Answer."""
        assert request.route is not None  # noqa: S101 - set by accept
        self._handlers[request.route.path](connection, request)

    def count_refusal(self, _refused: Refused) -> None:
        """Refusals of this port are nobody's traffic."""

    def _readyz(self, connection: Connection, _request: Request) -> None:
        reasons = self._limiter.not_ready()
        self._verdict(connection, good=not reasons, text="; ".join(reasons) or "ready")

    def _engine_started(self, connection: Connection, _request: Request) -> None:
        started = self._limiter.poller.view.started
        self._verdict(connection, good=started, text="started" if started else "the engine is not healthy yet")

    def _engine_alive(self, connection: Connection, _request: Request) -> None:
        alive = self._limiter.poller.view.alive(now=self._loop.time())
        self._verdict(connection, good=alive, text="alive" if alive else "the engine has been failing for too long")

    def _engine_metrics(self, connection: Connection, _request: Request) -> None:
        text = self._limiter.poller.metrics
        if text is None:
            self._verdict(connection, good=False, text="the engine's metrics could not be read lately")
        else:
            connection.answer(200, _METRICS, text)

    def _state(self, connection: Connection, _request: Request) -> None:
        connection.answer(200, _JSON, json.dumps(self._limiter.state(), indent=2).encode() + b"\n")

    def _limits(self, connection: Connection, request: Request) -> None:
        answer = self._limiter.pushes.receive(request.whole_body())
        connection.answer(STATUSES[answer.result], _JSON, json.dumps(answer.to_dict()).encode() + b"\n")

    def _drain(self, connection: Connection, request: Request) -> None:
        token = request.head.value(DRAIN_TOKEN_HEADER.encode()) or b""
        if hmac.compare_digest(hashlib.sha256(token).hexdigest(), self._token_sha256):
            waiter = _Waiter(lambda: self._verdict(connection, good=True, text="drained"), drains=True)
            waiter.on_gone = lambda: self._limiter.drainer.forget(waiter.answer)
            request.job = waiter
            self._limiter.drainer.drain(waiter.answer)
            return
        self.rejected_tokens += 1
        refused = Refused(Reason.UNAUTHORIZED, f"The header {DRAIN_TOKEN_HEADER} is missing or wrong.")
        waiter = _Waiter(lambda: connection.refuse(refused))
        waiter.on_gone = self._loop.call_later(WRONG_TOKEN_SECONDS, waiter.answer).cancel
        request.job = waiter

    @staticmethod
    def _verdict(connection: Connection, *, good: bool, text: str) -> None:
        connection.answer(200 if good else 503, _TEXT, text.encode() + b"\n")


def _drains(connection: Connection) -> bool:
    job = None if connection.request is None else connection.request.job
    return isinstance(job, _Waiter) and job.drains


class _Waiter:
    """An answer that comes later, unless the client leaves first."""

    def __init__(self, answer: Callable[[], None], *, drains: bool = False) -> None:
        self.answer = answer
        self.drains = drains
        self.on_gone: Callable[[], None] | None = None

    def client_gone(self) -> None:
        if self.on_gone is not None:
            self.on_gone()

    def filler(self) -> bytes:
        return CONTINUE

    def client_paused(self) -> None:
        """Nothing is being written."""

    def client_resumed(self) -> None:
        """Nothing is being written."""
