"""One generation request from the moment it asks until it has gone: what it holds, given back exactly once.

    state    | granted        | first_byte           | end                                   | give_up, dropped
    ---------|----------------|----------------------|---------------------------------------|---------------------
    waiting  | -> at engine   |                      |                                       | -> over, all is back
    at engine|                | prefill is over      | -> over: charge settled, permit back  |
    over     |                |                      |                                       |

(The permit of a client that left may come back a little later: `lingering`.)

Its owner sees to it that nothing else happens; if it did, a permit or a charge would be given back twice, which is an
error there.

A visit holds a charge from the beginning and a permit while it is at the engine. Where the charge is a shared store's,
the store is asked first (`Asking`), and what that holds is given back like a charge.

What its tenant pays:

    it never reached the engine, or that failed     nothing
    its client left before the engine answered      a request and the estimated prompt
    it answered with an error                       a request and no tokens
    it served the request, to the end or not        what it reported, else what was counted on the way
    neither can be known                            the estimate
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.admission.ask import Ask, Waiting
from penstock.admission.cost import Estimate
from penstock.admission.permit import Outcome, Permit
from penstock.admission.reservation import Reservation
from penstock.admission.sharedreservation import SharedReservation
from penstock.admission.shed import Shed
from penstock.limiter.asking import Asking
from penstock.limiter.identity import Identity
from penstock.limiter.refusal import Dialect, Fields
from penstock.limiter.usage import UsageWatch
from penstock.limiter.wish import Wish

if TYPE_CHECKING:
    from penstock.limiter.admission import Admission


class Visit:
    """See the module's docstring.

    Attributes:
        caller: Who sent it.
        wish: What it asks for.
        dialect: Whose headers its client knows.
        band: Name of its priority class.
        since: When it came, as a whole.
        deadline: When it must have gone to the engine.
        estimate: What it is expected to cost.
        retry: Whether it repeats an earlier one.
        mark: What it has in common with its repetitions; empty when nobody asks for that.
        reservation: What its quotas were charged, or asked; None without quotas.
        permit: Its right to be at the engine; None while it waits.
        waiting: Its place in the queue; None when it needs none.
        would: Why it should have been refused, when decisions are only counted.
        fields: Headers about quotas for its answer.
        add_usage: Whether the engine is asked for a usage that the client did not ask for.
    """

    __slots__ = (
        "_admission", "_admitted_at", "_answered", "add_usage", "band", "caller", "deadline", "dialect", "estimate",
        "fields", "mark", "permit", "reservation", "retry", "since", "waiting", "wish", "would",
    )  # fmt: skip

    def __init__(
        self,
        admission: Admission,
        caller: Identity,
        wish: Wish,
        *,
        dialect: Dialect,
        band: str,
        since: float,
        deadline: float,
        estimate: Estimate,
    ) -> None:
        self._admission = admission
        self.caller = caller
        self.wish = wish
        self.dialect = dialect
        self.band = band
        self.since = since
        self.deadline = deadline
        self.estimate = estimate
        self.mark = b""
        self.retry = False
        self.add_usage = False
        self.reservation: Reservation | SharedReservation | Asking | None = None
        self.permit: Permit | None = None
        self.waiting: Waiting | None = None
        self.would: Shed | None = None
        self.fields: Fields = ()
        self._answered = False
        self._admitted_at = 0.0

    @property
    def asking(self) -> Asking | None:
        """Its question to the shared store, while that is not answered."""
        return self.reservation if isinstance(self.reservation, Asking) else None

    @property
    def delay_seconds(self) -> float:
        """How much later than it came it may start."""
        return 0.0 if self.reservation is None else self.reservation.delay_seconds

    def ask(self, now: float) -> Ask:
        """Return what the gate is asked."""
        return Ask(
            band=self.band,
            tenant=self.caller.tenant,
            weight=self.caller.limits.weight,
            requests=self.wish.sequences,
            # An answer in one piece does not show when its prompt was worked off, so it says nothing of that rate.
            prefill_tokens=self.estimate.prompt_tokens if self.wish.stream else 0,
            cost=self.estimate.cost,
            budget_seconds=self.deadline - now,
            retry=self.retry,
        )

    def granted(self, permit: Permit, now: float) -> None:
        """It may go to the engine now."""
        self.waiting = None
        self.permit = permit
        self._admitted_at = now
        if self.would is None:
            self._admission.retries.admitted(now, retry=self.retry)

    def first_byte(self) -> None:
        """The engine has begun to answer."""
        if self.permit is not None:
            now = self._admission.now()
            if self.wish.stream and not self._answered:
                self._admission.first_tokens.note(now - self._admitted_at, now)
            self._answered = True
            self.permit.first_byte(now)
            self._admission.room.advance(now)

    def end(
        self, outcome: Outcome | None, *, served: bool, whole: bool, watch: UsageWatch | None, left: bool = False
    ) -> None:
        """Its time at the engine is over.

        Args:
            outcome: What it says about the engine; None when it was cancelled.
            left: Whether its client has left.
            served: Whether the engine took the request and did not answer with an error.
            whole: Whether the client has its whole answer.
            watch: What its answer showed; None when that cannot be read.
        """
        permit, self.permit = self.permit, None
        if permit is None:
            return
        now = self._admission.now()
        self._settle(now, watch, served=served, whole=whole, left=left)
        lingering = self._admission.lingering if left else None
        if lingering is not None:
            lingering.keep(permit)
        elif outcome is None:
            permit.cancel(now)
        else:
            permit.finish(outcome, now)
        if whole:
            self._admission.retries.answered(self.mark)
        else:
            self._admission.retries.unanswered(self.mark, now)
        self._admission.room.advance(now)

    def give_up(self) -> None:
        """It leaves without having been at the engine."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            self._admission.room.give_place_back(waiting)
        self._admission.retries.unanswered(self.mark, self._admission.now())
        self.refund()
        self._admission.room.advance()

    def dropped(self) -> None:
        """Its place in the queue is gone."""
        self.waiting = None
        self._admission.retries.unanswered(self.mark, self._admission.now())
        self.refund()

    def refund(self) -> None:
        """Give the charge back."""
        reservation, self.reservation = self.reservation, None
        if reservation is not None:
            reservation.cancel(self._admission.now())

    def _settle(self, now: float, watch: UsageWatch | None, *, served: bool, whole: bool, left: bool) -> None:
        if not self._answered and not left:
            self.refund()
            return
        prompt, output = self.estimate.prompt_tokens, self.estimate.output_tokens
        if not self._answered:
            output = 0  # else whoever leaves in time would use the engine for nothing
        elif not served:
            prompt = output = 0
        elif watch is not None:
            generated = watch.generated_tokens
            if generated is not None:
                output = generated
            if watch.prompt_tokens is not None:
                prompt = watch.prompt_tokens
                if whole and watch.error is None and not watch.aborted:
                    self._admission.costs.observe(self.estimate, prompt_tokens=prompt, output_tokens=output)
        reservation, self.reservation = self.reservation, None
        if reservation is not None:
            reservation.settle(prompt, output, now=now)
