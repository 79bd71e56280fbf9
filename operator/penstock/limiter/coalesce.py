"""Requests that are one: whether a request gets a run of its own or follows one that there is.

    request                                           | what happens, in this order
    --------------------------------------------------|--------------------------------------------------------------
    with `Idempotency-Key`                            | `admission.idempotency`: it leads a run, follows one, or is
                                                      | refused with 409 or 422
    a retry without a key (`x-stainless-retry-count`) | `admission.repetition`: it follows the request that it repeats,
                                                      | or ends it, or has nothing to do with it
    any other                                         | is served for its own connection

A key belongs to its tenant and path. Whoever follows is charged nothing: it costs the engine nothing, and a client that
lost its connection must not be told that its own first try has used its quota up. Nor is it asked for its place in the
queue: it has that of the run.

In shadow mode runs under way are known, and what would be done is counted; every request is served for itself. Answers
are not kept then, so `replayed` stays 0. Disabled, nobody looks.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from penstock.admission.idempotency import Coalesced, Entry, Runs, Standing, is_key, made_by_sdk, scope_of
from penstock.admission.repetition import Attempt, Kinship, kinship
from penstock.admission.retrybudget import fingerprint
from penstock.api.admission import AdmissionMode
from penstock.limiter.client import Client
from penstock.limiter.connection import Connection
from penstock.limiter.exchange import Exchange
from penstock.limiter.follower import Follower
from penstock.limiter.patience import READ_TIMEOUT_HEADER, number
from penstock.limiter.reception import RETRY_COUNT_HEADER
from penstock.limiter.refusal import Fields, Reason, Refused
from penstock.limiter.run import Run
from penstock.limiter.service import Request
from penstock.limiter.trace import Trace
from penstock.limiter.turn import Turn

if TYPE_CHECKING:
    from penstock.limiter.head import RequestHead
    from penstock.limiter.relay import Relay

KEY_HEADER = b"idempotency-key"
SHOWN_HEADER = b"x-penstock-coalesced"

_JOINED: Fields = ((SHOWN_HEADER, b"joined"),)
_REPLAYED: Fields = ((SHOWN_HEADER, b"replayed"),)


class Coalescing:
    """See the module's docstring.

    Attributes:
        loop: Where timers run.
        runs: Runs with a key.
        traffic: Counts what followers are sent.
        counts: What was done, or would be in shadow mode.
    """

    def __init__(self, relay: Relay) -> None:
        self.loop: asyncio.AbstractEventLoop = relay.loop
        self.runs: Runs[Run] = Runs()
        self.traffic = relay.traffic
        self.counts = dict.fromkeys(Coalesced, 0)
        self._relay = relay
        self._admission = relay.admission
        self._traces: WeakValueDictionary[bytes, Trace] = WeakValueDictionary()
        """The latest request under way for each body."""
        self._shadows: WeakValueDictionary[bytes, Trace] = WeakValueDictionary()
        """Those with a key, in shadow mode."""
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def closing(self) -> bool:
        """Whether every response ends its connection."""
        return self._relay.closing

    @property
    def admits(self) -> bool:
        """Whether anybody could come back."""
        return self._relay.admits

    def count(self, kind: Coalesced) -> None:
        """Count what was done."""
        self.counts[kind] += 1

    def expects(self, request: Request) -> bool:
        """Say by the head alone whether a request will follow a run, so that its body is wanted in any case."""
        key = request.head.value(KEY_HEADER)
        if key is None or self._admission.mode is not AdmissionMode.ENFORCE:
            return False
        return self.runs.knows(self._scope(request, key), self.loop.time())

    def serve(self, connection: Connection, request: Request) -> Client | None:
        """Let a complete request follow a run if it should.

        Returns:
            For whom it is to be served: its connection, or a run that it leads; None when it follows another.

        Raises:
            Refused: its key does not let it pass.
        """
        if self._admission.mode is AdmissionMode.DISABLED:
            return connection
        head = request.head
        key = head.value(KEY_HEADER)
        if key is not None:
            return self._with_key(connection, request, key)
        count = int(number(head, RETRY_COUNT_HEADER) or 0)
        if count and self._repeats(connection, request, count):
            return None
        return connection

    def note(self, client: Client, request: Request, mark: bytes) -> None:
        """Remember a request that has no key, as long as it is served."""
        if mark and isinstance(client, Connection):
            trace = request.trace or Trace(client, since=self.loop.time())
            self._traces[mark] = request.trace = trace

    def ended(self, entry: Entry[Run], *, kept: bool) -> None:
        """A run with a key is over."""
        if not kept:
            self.runs.forget(entry)
            return
        self.runs.served(entry, self.loop.time())
        self._set_sweeper()

    # ---- with a key

    def _with_key(self, connection: Connection, request: Request, key: bytes) -> Client | None:
        enforce = self._admission.mode is AdmissionMode.ENFORCE
        if not is_key(key) or sum(field[0] == KEY_HEADER for field in request.head.fields) > 1:
            if enforce:
                message = "Idempotency-Key must be sent once and be 1 to 255 visible characters."
                raise Refused(Reason.BAD_REQUEST, message)
            return connection
        scope, mark = self._scope(request, key), self._mark(request)
        if not enforce:
            self._only_count(scope, mark, connection, request)
            return connection
        standing, entry = self.runs.find(scope, mark, self.loop.time())
        if entry is None:
            return self._lead(scope, mark, connection, request, reclaimable=not made_by_sdk(key))
        if standing is Standing.CONFLICTS:
            self.count(Coalesced.CONFLICT)
            message = "This Idempotency-Key was used for a request with another body. Use a new key for a new request."
            raise Refused(Reason.KEY_CONFLICT, message)
        if standing is Standing.BUSY:
            self.count(Coalesced.BUSY)
            message = "The request with this Idempotency-Key is still running, and its answer is too long to be joined."
            raise Refused(Reason.KEY_BUSY, message)
        run = entry.holder
        if standing is Standing.REPLAYS:
            self.count(Coalesced.REPLAYED)
            run.follow(connection, request, fields=_REPLAYED)
        else:
            self.count(Coalesced.RECLAIMED if run.is_alone else Coalesced.JOINED)
            run.follow(connection, request, fields=_JOINED)
        return None

    def _lead(self, scope: bytes, mark: bytes, connection: Connection, request: Request, *, reclaimable: bool) -> Run:
        run = Run(self, request.hand_over(), keyed=True)
        run.remember_as(self.runs.begin(scope, mark, run), reclaimable=reclaimable)
        run.follow(connection, request)
        return run

    def _only_count(self, scope: bytes, mark: bytes, connection: Connection, request: Request) -> None:
        earlier = self._shadows.get(scope)
        if earlier is not None and earlier.request is not None:
            self.count(Coalesced.JOINED if earlier.mark == mark else Coalesced.CONFLICT)
        else:
            trace = Trace(connection, since=self.loop.time(), mark=mark)
            self._shadows[scope] = request.trace = trace

    @staticmethod
    def _scope(request: Request, key: bytes) -> bytes:
        assert request.route is not None and request.caller is not None  # noqa: S101, PT018 - set by accept
        return scope_of(request.caller.tenant, request.route.path, key)

    @staticmethod
    def _mark(request: Request) -> bytes:
        """Return what a request has in common with its repetitions; SDKs draw another boundary for each try."""
        assert request.route is not None and request.caller is not None  # noqa: S101, PT018 - set by accept
        body = request.whole_body()
        boundary = boundary_of(request.head)
        if boundary:
            body = body.replace(boundary, b"")
        return fingerprint(f"{request.caller.tenant} {request.route.target.decode()}", (body,))

    # ---- without a key

    def _repeats(self, connection: Connection, request: Request, count: int) -> bool:
        """Find the request that a retry repeats; return whether it follows that one now."""
        assert request.route is not None and request.caller is not None  # noqa: S101, PT018 - set by accept
        mark = fingerprint(f"{request.caller.tenant} {request.route.path}", (request.whole_body(),))
        trace = self._traces.get(mark)
        earlier = None if trace is None else trace.request
        job = None if earlier is None else earlier.job
        if trace is None or earlier is None or not isinstance(job, Turn | Exchange | Follower):
            return False
        found = kinship(
            _attempt(earlier.head, trace.since),
            count,
            gone=trace.connection.gone,
            begun=not isinstance(job, Turn) and job.begun,
            now=self.loop.time(),
        )
        if found is Kinship.NONE:
            return False
        self.count(Coalesced.RETRY_JOINED if found is Kinship.JOINS else Coalesced.ORPHAN_CANCELLED)
        if self._admission.mode is not AdmissionMode.ENFORCE:
            return False
        if found is Kinship.REPLACES:
            job.client_gone()  # now, so that its place is free before the retry asks for one
            trace.connection.transport.abort()
            return False
        run = job.run if isinstance(job, Follower) else self._shared(trace.connection, earlier, job)
        run.follow(connection, request, fields=_JOINED)
        self.note(connection, request, mark)
        return True

    def _shared(self, connection: Connection, request: Request, job: Turn | Exchange) -> Run:
        """Turn what is served for one connection into a run that others can follow."""
        handed = request.hand_over()
        run = Run(self, handed, keyed=False)
        handed.job = job
        run.at_engine = isinstance(job, Exchange)
        job.serve_instead(run, handed)
        run.follow(connection, request)
        return run

    # ---- time

    def _set_sweeper(self) -> None:
        due = self.runs.next_expiry()
        if self._sweeper is None and due is not None:
            self._sweeper = self.loop.call_at(due, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        self.runs.expire(self.loop.time())
        self._set_sweeper()


def boundary_of(head: RequestHead) -> bytes:
    """Return the boundary of a form's parts; empty for any other body."""
    kind = head.value(b"content-type") or b""
    if not kind.lower().startswith(b"multipart/"):
        return b""
    for parameter in kind.split(b";")[1:]:
        name, _, value = parameter.strip().partition(b"=")
        if name.lower() == b"boundary":
            return value.strip(b'"')
    return b""


def _attempt(head: RequestHead, since: float) -> Attempt:
    return Attempt(
        count=int(number(head, RETRY_COUNT_HEADER) or 0),
        since=since,
        patience_seconds=number(head, READ_TIMEOUT_HEADER),
    )
