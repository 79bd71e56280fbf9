"""Who may go to the engine, and when: the decisions of `penstock.admission` with a loop and a clock around them.

For each generation request, in this order, and nothing is charged by a request that is refused on the way:

    caller      identified by the head, before the body is read     401
    wish        read from the body                                  400
    retry       if the replica is busy: may one more be repeated?   503 retry_budget_exhausted
    quotas      all are checked, then all are charged               429, or 400 for what never fits
    gate        a permit, a place in the queue, or neither          503 or 429

Where a shared store counts, a request waits for its answer in between, 20 ms at most. Who has to wait is kept in the
waiting room. In shadow mode the same is decided and counted, and everything goes on at once (but for those 20 ms).
Disabled, nothing is even read.
"""

from __future__ import annotations

import asyncio
import logging

from penstock.admission.ask import Waiting
from penstock.admission.bands import Bands
from penstock.admission.connected import Connected
from penstock.admission.gate import Gate
from penstock.admission.limit import Limit
from penstock.admission.permit import Permit
from penstock.admission.recent import Recent
from penstock.admission.retrybudget import fingerprint
from penstock.admission.shed import Shed
from penstock.api.admission import AdmissionMode, AdmissionPolicy
from penstock.api.policy import Policy
from penstock.limiter import reading
from penstock.limiter.asking import Asking, Found
from penstock.limiter.concurrency import Engine, bounds
from penstock.limiter.decisions import Decisions
from penstock.limiter.firsttoken import FirstTokens
from penstock.limiter.head import RequestHead
from penstock.limiter.identity import Identity
from penstock.limiter.lingering import Lingering
from penstock.limiter.path import Route
from penstock.limiter.reception import Reception
from penstock.limiter.refusal import Refused
from penstock.limiter.service import Request
from penstock.limiter.shedding import refusal
from penstock.limiter.toll import Toll
from penstock.limiter.turn import Turn
from penstock.limiter.visit import Visit
from penstock.limiter.waitingroom import WaitingRoom
from penstock.limiter.wish import Kind, Wish

logger = logging.getLogger(__name__)


class Admission:
    """Admission at one replica.

    Attributes:
        decisions, gate, room, toll, reception: The parts.
        shed, charges, store, costs, retries, keys: Parts of these that others need.
        now: Returns the time by the clock of all decisions.
        recently_shed: Requests refused for load.
        first_tokens: How long streams took to begin.
        lingering: Permits whose clients have left; None for an engine that frees their places at once.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        engine: Engine,
        context_tokens: int | None,
        tenants_path: str | None,
        backend_uid: str = "",
        store_url_path: str | None = None,
    ) -> None:
        self.now = loop.time
        self._engine = engine
        self._policy = policy = AdmissionPolicy()
        self._bounds = limit = bounds(policy.concurrency, engine)
        self.decisions = Decisions(policy.mode)
        self.shed = self.decisions.shed
        self.gate = Gate(Bands(policy.classes), Limit(limit.initial, floor=limit.floor, ceiling=limit.ceiling))
        self.room = WaitingRoom(loop, self.gate, refusal=self._refusal)
        self.toll = Toll(loop, backend_uid=backend_uid, store_url_path=store_url_path, decisions=self.decisions)
        self.charges = self.toll.charges
        self.store = self.toll.store
        self.reception = Reception(self, self.decisions, tenants_path=tenants_path, context_tokens=context_tokens)
        self.costs = self.reception.costs
        self.retries = self.reception.retries
        self.keys = self.reception.keys
        self.recently_shed = Recent()
        self.first_tokens = FirstTokens()
        self.lingering: Lingering | None = None

    @property
    def mode(self) -> AdmissionMode:
        """What is done with decisions."""
        return self.decisions.mode

    def configure(self, policy: Policy) -> None:
        """Put a policy in force; what runs, waits or was counted is kept."""
        now = self.now()
        self._policy = admission = policy.admission
        self.decisions.follow(admission.mode)
        self._set_bounds()
        self.gate.configure(
            Bands(admission.classes),
            queue_limit=admission.queue.max_requests,
            shadow=not self.decisions.enforced,
            now=now,
        )
        self.gate.longest_wait_seconds = admission.queue.max_wait_seconds
        self.reception.configure(policy)
        self.toll.configure(policy)
        if not self.decisions.enforced:
            self._let_all_go()
        self.room.advance()

    def refresh_keys(self) -> None:
        """Read the API keys and the store's URL again if they have changed."""
        if self.keys is not None:
            self.keys.refresh()
        self.toll.refresh()

    def state(self) -> dict[str, object]:
        """Return what `/state` shows of admission."""
        gate = self.gate
        limit = {name: getattr(gate.limit, name) for name in ("value", "floor", "ceiling", "reason")}
        return {
            "mode": self.mode,
            "limit": limit,
            "inFlight": gate.in_flight,
            "waiting": {name: depth for name, depth in gate.depth_by_band.items() if depth},
            "delayed": self.room.delayed,
            "admitted": gate.books.admitted,
            "drift": gate.books.drift,
        } | self.toll.state()

    # ---- a request comes

    def connect(self, peer: str) -> Connected | Refused | None:
        """Count a connection; `Refused` when its requests are to be refused, None when nobody counts it."""
        if self.decisions.disabled or not self.charges.of_connections:
            return None
        return self.toll.connect(self.reception.address_of(peer))

    def expect(self, caller: Identity, head: RequestHead, *, route: Route) -> None:
        """Look ahead for a request whose large body is still to come.

        Raises:
            Refused: it would be refused whatever the body says.
        """
        if self.decisions.enforced:
            visit = self.reception.visit(head, caller, Wish(kind=Kind.COUNT, max_output_tokens=0), route)
            self.toll.pay(visit, visit.since, here=True)
            visit.refund()

    def admit(self, request: Request, route: Route, caller: Identity) -> Visit:
        """Decide about a complete request: its visit has a permit, a place in the queue, or is to be delayed.

        Raises:
            Refused: it may not go to the engine, neither now nor soon.
        """
        if self.decisions.disabled:
            visit = self.reception.visit(request.head, caller, reading.unread(route), route)
            self._ask(visit, visit.since)
            return visit
        body = request.whole_body()
        visit = self.reception.read(request.head, caller, route, body)
        visit.mark = fingerprint(f"{caller.tenant} {route.path}", (body,))
        amended = reading.asking_for_usage(visit.wish, body) if self.charges.count_tokens else None
        now = self.now()  # a body of megabytes takes as long to read as a store may for its answer
        try:
            self.reception.check(visit, request.head, refusal=self._refusal)
            self.toll.pay(visit, now)
        except Refused:
            self.retries.unanswered(visit.mark, now)
            raise
        try:
            if amended is not None:
                visit.add_usage = True
                request.replace_body(amended)
            if not isinstance(visit.reservation, Asking):
                self._charged(visit, now)
        except BaseException:
            visit.refund()
            raise
        return visit

    def wait(self, turn: Turn) -> None:
        """Take charge of a request that has no permit yet."""
        visit = turn.visit
        if visit.asking is not None:
            self.room.hold(turn)
            visit.asking.await_answer(lambda found: self._answered(turn, found))
            self.store.ask(visit.asking)
        elif visit.waiting is not None:
            self.room.enter(turn, visit.waiting)
        else:
            self.room.delay(turn, visit.delay_seconds, self._ask_late)

    # ---- inside

    def _set_bounds(self) -> None:
        """Follow the policy, unless it says of the limit what it said before: then that has moved for a reason."""
        found = bounds(self._policy.concurrency, self._engine, unlimited=self.decisions.disabled)
        if found != self._bounds:
            self._bounds = found
            self.gate.limit.pin(found.floor, found.ceiling)
            self.gate.limit.set(found.initial, "policy")

    def _let_all_go(self) -> None:
        """Decisions are only counted from now on: nobody waits any more, and all that do ask anew."""
        for turn in self.room.empty():
            turn.visit.waiting = None
            if turn.visit.asking is not None:
                turn.visit.refund()
            self._ask(turn.visit, self.now())
            turn.granted()

    def _charged(self, visit: Visit, now: float) -> None:
        """Go on with a request that its quotas let pass.

        Raises:
            Refused: the gate does not.
        """
        held, enforced = visit.reservation, self.decisions.enforced
        if enforced:
            visit.fields = self.charges.fields(visit.caller, held, dialect=visit.dialect, now=now)
        if held is None or not held.delay_seconds or not enforced:
            self._ask(visit, now)

    def _answered(self, turn: Turn, found: Found) -> None:
        """Go on with a request that asked the store."""
        self.room.release(turn)
        try:
            self.toll.conclude(turn.visit, found)
            self._charged(turn.visit, self.now())
        except Refused as refused:
            turn.visit.give_up()
            turn.refused(refused)
            return
        except Exception:
            logger.exception("a request could not go on after the shared store was asked")
            turn.fail()
            return
        if turn.visit.permit is not None:
            turn.granted()
        else:
            self.wait(turn)

    def _ask(self, visit: Visit, now: float) -> None:
        """Ask the gate; gives the visit a permit or a place in the queue.

        Raises:
            Refused: neither is to be had; the visit is over.
        """
        ask = visit.ask(now)
        decision = self.gate.ask(ask, now) if visit.would is None else self.gate.pass_by(ask, visit.would)
        if isinstance(decision, Permit):
            if isinstance(decision.would, Shed):
                visit.would = decision.would
                visit.refund()  # if it had been refused in earnest, it would have cost nothing
            visit.granted(decision, now)
        elif isinstance(decision, Waiting):
            visit.waiting = decision
        else:
            visit.give_up()
            raise self._refusal(decision)

    def _ask_late(self, turn: Turn) -> None:
        """Ask the gate for a request that was delayed."""
        try:
            self._ask(turn.visit, self.now())
        except Refused as refused:
            turn.refused(refused)
            return
        if turn.visit.waiting is None:
            turn.granted()
        else:
            self.wait(turn)

    def _refusal(self, shed: Shed) -> Refused:
        now = self.now()
        self.recently_shed.count(now)
        rate = self.gate.waits.completions.per_second(now)
        seconds = None if rate is None else (1 + self.gate.waiting_requests) / rate
        return refusal(shed, overload=self._policy.overload_status, retry_after_seconds=seconds)
