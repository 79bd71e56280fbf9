"""Who may go to the engine, and when: the decisions of `penstock.admission` with a loop and a clock around them.

For each generation request, in this order, and nothing is charged by a request that is refused on the way:

    caller      identified by the head, before the body is read     401
    wish        read from the body                                  400
    retry       if the replica is busy: may one more be repeated?   503 retry_budget_exhausted
    quotas      all are checked, then all are charged               429, or 400 for what never fits
    gate        a permit, a place in the queue, or neither          503 or 429

Who has to wait is kept in the waiting room. In shadow mode the same is decided and counted, and everything goes on at
once. Disabled, nothing is even read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import msgspec

from penstock.admission.ask import Ask, Waiting
from penstock.admission.bands import Bands
from penstock.admission.cost import CostModel
from penstock.admission.gate import Gate
from penstock.admission.limit import Limit
from penstock.admission.permit import Permit
from penstock.admission.recent import Recent
from penstock.admission.reservation import Reservation
from penstock.admission.retrybudget import RetryBudget, fingerprint
from penstock.admission.shed import Shed
from penstock.api.admission import AdmissionMode, AdmissionPolicy
from penstock.api.policy import Policy
from penstock.limiter.body import read_wish, with_usage
from penstock.limiter.charges import Charges
from penstock.limiter.concurrency import Engine, bounds
from penstock.limiter.head import RequestHead
from penstock.limiter.identity import Identifier, Identity
from penstock.limiter.keys import KeyFolder
from penstock.limiter.path import Route
from penstock.limiter.patience import number, patience_seconds
from penstock.limiter.refusal import Reason, Refused
from penstock.limiter.service import Request
from penstock.limiter.shedding import refusal
from penstock.limiter.turn import Turn
from penstock.limiter.visit import Visit
from penstock.limiter.waitingroom import WaitingRoom
from penstock.limiter.wish import KINDS, Kind, Wish

RETRY_COUNT_HEADER = b"x-stainless-retry-count"

EARLY_BODY_BYTES = 64 * 1024
"""Bodies above this are not read while the request would be refused anyway."""

_SHED = {Reason.RATE_LIMIT_EXCEEDED: Shed.QUOTA, Reason.NEVER_FITS: Shed.NEVER_FITS}


class Admission:
    """Admission at one replica.

    Attributes:
        gate, charges, costs, retries, identifier, keys, room: The parts.
        mode: What is done with decisions.
        shed: Requests that the retry budget or a quota refused, by class name and why; the gate counts its own.
        recently_shed: Requests refused for load.
    """

    def __init__(
        self, *, loop: asyncio.AbstractEventLoop, engine: Engine, context_tokens: int | None, tenants_path: str | None
    ) -> None:
        self._loop = loop
        self._engine = engine
        self._policy = policy = AdmissionPolicy()
        self._classes = {one.name: one for one in policy.classes}
        self._bounds = limit = bounds(policy.concurrency, engine)
        self.mode = policy.mode
        self.gate = Gate(Bands(policy.classes), Limit(limit.initial, floor=limit.floor, ceiling=limit.ceiling))
        self.room = WaitingRoom(loop, self.gate, refusal=self._refusal)
        self.charges = Charges(now=self.now())
        self.costs = CostModel(context_tokens=context_tokens)
        self.retries = RetryBudget(policy.retry_budget_percent)
        self.keys = KeyFolder(Path(tenants_path)) if tenants_path else None
        self.identifier = Identifier(None, keys=self.keys)
        self.shed: Counter[tuple[str, Shed]] = Counter()
        self.recently_shed = Recent()

    def now(self) -> float:
        """Return the time by the clock of all decisions."""
        return self._loop.time()

    def configure(self, policy: Policy) -> None:
        """Put a policy in force; what runs, waits or was counted is kept."""
        now = self.now()
        self._policy = admission = policy.admission
        self._classes = {one.name: one for one in admission.classes}
        self.mode = admission.mode
        self._set_bounds()
        self.gate.configure(
            Bands(admission.classes),
            queue_limit=admission.queue.max_requests,
            shadow=self.mode is not AdmissionMode.ENFORCE,
            now=now,
        )
        self.retries.percent = admission.retry_budget_percent
        self.identifier.reconfigure(policy.tenants)
        self.charges.configure(policy, now=now)
        if self.mode is not AdmissionMode.ENFORCE:
            self._let_all_go()
        self.room.advance()

    def refresh_keys(self) -> None:
        """Read the API keys again if they have changed."""
        if self.keys is not None:
            self.keys.refresh()

    def state(self) -> dict[str, object]:
        """Return what `/state` shows of admission."""
        gate = self.gate
        limit = gate.limit
        return {
            "mode": self.mode,
            "limit": {"value": limit.value, "floor": limit.floor, "ceiling": limit.ceiling, "reason": limit.reason},
            "inFlight": gate.in_flight,
            "waiting": {name: depth for name, depth in gate.depth_by_band.items() if depth},
            "delayed": self.room.delayed,
            "admitted": gate.books.admitted,
            "drift": gate.books.drift,
        }

    # ---- a request comes

    def identify(self, head: RequestHead, peer: str) -> Identity:
        """Say who calls.

        Raises:
            Refused: nobody that is let in.
        """
        return self.identifier.identify(head, peer, refuse=self.mode is AdmissionMode.ENFORCE)

    def expect(self, caller: Identity, head: RequestHead, *, body_bytes: int, route: Route) -> None:
        """Look ahead for a request whose large body is still to come.

        Raises:
            Refused: it would be refused whatever the body says.
        """
        if body_bytes > EARLY_BODY_BYTES and self.mode is AdmissionMode.ENFORCE:
            visit = self._visit(head, caller, Wish(kind=Kind.COUNT, max_output_tokens=0))
            reservation = self._reserve(visit, route)
            if reservation is not None:
                reservation.cancel(self.now())

    def admit(self, request: Request, route: Route, caller: Identity) -> Visit:
        """Decide about a complete request: its visit has a permit, a place in the queue, or is to be delayed.

        Raises:
            Refused: it may not go to the engine, neither now nor soon.
        """
        if self.mode is AdmissionMode.DISABLED:
            visit = self._visit(request.head, caller, _unread(route))
            self._ask(visit)
            return visit
        body = request.whole_body()
        visit = self._visit(request.head, caller, self._wish(route, body))
        amended = self._with_usage(visit, body)
        visit.mark = fingerprint(f"{caller.tenant} {route.path}", (body,))
        try:
            self._check_retry(visit, request.head)
            visit.reservation = self._reserve(visit, route)
        except Refused:
            self.retries.unanswered(visit.mark, self.now())
            raise
        try:
            if self.mode is AdmissionMode.ENFORCE:
                visit.fields = self.charges.fields(caller, dialect=route.dialect, now=self.now())
            if amended is not None:
                visit.add_usage = True
                request.replace_body(amended)
            if not visit.delay_seconds or self.mode is AdmissionMode.SHADOW:
                self._ask(visit)
        except BaseException:
            visit.refund()
            raise
        return visit

    def wait(self, turn: Turn) -> None:
        """Take charge of a request that has no permit yet."""
        visit = turn.visit
        if visit.waiting is not None:
            self.room.enter(turn, visit.waiting)
        else:
            self.room.delay(turn, visit.delay_seconds, self._ask_late)

    def went_in(self, visit: Visit) -> None:
        """A visit has its permit."""
        if visit.would is None:
            self.retries.admitted(self.now(), retry=visit.retry)

    # ---- inside

    def _set_bounds(self) -> None:
        """Follow the policy, unless it says of the limit what it said before: then that has moved for a reason."""
        found = bounds(self._policy.concurrency, self._engine, unlimited=self.mode is AdmissionMode.DISABLED)
        if found != self._bounds:
            self._bounds = found
            self.gate.limit.pin(found.floor, found.ceiling)
            self.gate.limit.set(found.initial, "policy")

    def _let_all_go(self) -> None:
        """Decisions are only counted from now on: nobody waits any more, and all that do ask anew."""
        for turn in self.room.empty():
            turn.visit.waiting = None
            self._ask(turn.visit)
            turn.granted()

    def _visit(self, head: RequestHead, caller: Identity, wish: Wish) -> Visit:
        bands = self.gate.bands
        band = bands.names[bands.index(caller.priority_class(head))]
        deadline = self.now() + patience_seconds(head, self._classes[band], self._policy.queue)
        estimate = self.costs.estimate(
            wish.model or "", wish.prompt, sequences=wish.sequences, max_output_tokens=wish.max_output_tokens
        )
        return Visit(self, caller, wish, band=band, deadline=deadline, estimate=estimate)

    def _wish(self, route: Route, body: bytes) -> Wish:
        try:
            return read_wish(route.path, body)
        except Refused:
            if self.mode is AdmissionMode.ENFORCE:
                raise
            return _unread(route)

    def _with_usage(self, visit: Visit, body: bytes) -> bytes | None:
        """Return the body that also asks for usage; None when nobody needs it or the body cannot be amended."""
        if not (visit.wish.can_add_usage and self.charges.count_tokens):
            return None
        try:
            return with_usage(body)
        except msgspec.DecodeError:  # the options hold a number that is none; the engine will say so
            return None

    def _check_retry(self, visit: Visit, head: RequestHead) -> None:
        """Find out whether a request is a repetition that is one too many; while nobody has to wait it does no harm.

        Raises:
            Refused: it is.
        """
        now = self.now()
        visit.retry = self.retries.is_retry(visit.mark, retry_count=int(number(head, RETRY_COUNT_HEADER) or 0), now=now)
        is_busy = self.gate.depth > 0 or self.gate.in_flight >= self.gate.limit.value
        if visit.retry and is_busy and not self.retries.allows(now):
            self._note_shed(visit, Shed.RETRY_BUDGET)
            if self.mode is AdmissionMode.ENFORCE:
                raise self._refusal(Shed.RETRY_BUDGET)

    def _reserve(self, visit: Visit, route: Route) -> Reservation | None:
        """Charge the quotas; None when nothing is charged.

        Raises:
            Refused: one refuses.
        """
        if visit.would is not None:
            return None
        now = self.now()
        patience = visit.deadline - now
        try:
            return self.charges.reserve(
                visit.caller, visit.estimate, patience_seconds=patience, dialect=route.dialect, now=now
            )
        except Refused as refused:
            self._note_shed(visit, _SHED[refused.reason])
            if self.mode is AdmissionMode.ENFORCE:
                raise
            return None

    def _note_shed(self, visit: Visit, shed: Shed) -> None:
        self.shed[visit.band, shed] += 1
        visit.would = shed

    def _ask(self, visit: Visit) -> None:
        """Ask the gate; gives the visit a permit or a place in the queue.

        Raises:
            Refused: neither is to be had; the visit is over.
        """
        now = self.now()
        ask = Ask(
            band=visit.band,
            tenant=visit.caller.tenant,
            weight=visit.caller.limits.weight,
            requests=visit.wish.sequences,
            # An answer in one piece does not show when its prompt was worked off, so it says nothing of that rate.
            prefill_tokens=visit.estimate.prompt_tokens if visit.wish.stream else 0,
            cost=visit.estimate.cost,
            budget_seconds=visit.deadline - now,
            retry=visit.retry,
        )
        decision = self.gate.ask(ask, now) if visit.would is None else self.gate.pass_by(ask, visit.would)
        if isinstance(decision, Permit):
            if isinstance(decision.would, Shed):
                visit.would = decision.would
                visit.refund()  # if it had been refused in earnest, it would have cost nothing
            visit.granted(decision)
        elif isinstance(decision, Waiting):
            visit.waiting = decision
        else:
            visit.give_up()
            raise self._refusal(decision)

    def _ask_late(self, turn: Turn) -> None:
        """Ask the gate for a request that was delayed."""
        try:
            self._ask(turn.visit)
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


def _unread(route: Route) -> Wish:
    return Wish(kind=KINDS.get(route.path, Kind.ENCODE))
