"""What was charged for one request before it went on, and how that is put right when the truth is known.

Checking now but charging at the end would let any number of requests pass that are under way together; so the estimate
is charged at once.

    state     settle(truth)                                      cancel
    open      the difference is charged or refunded: closed      all is refunded: closed
    closed    ReservationError                                   ReservationError
"""

from __future__ import annotations

from penstock.admission.account import Account, Counted, Use
from penstock.admission.accounts import Accounts
from penstock.admission.quotaview import QuotaView, view_of


class ReservationError(RuntimeError):
    """A reservation was closed twice: a defect of the limiter, never of a client."""


class Reservation:
    """What was charged for one request; closed exactly once.

    Attributes:
        delay_seconds: How much later to start the request.
    """

    __slots__ = ("_charged_at", "_charges", "_holders", "_use", "delay_seconds")

    def __init__(
        self,
        charges: list[tuple[Counted, int]],
        holders: list[tuple[Accounts, Account]],
        *,
        use: Use,
        delay_seconds: float,
        now: float,
    ) -> None:
        self.delay_seconds = delay_seconds
        self._charges: list[tuple[Counted, int]] | None = charges
        self._holders = holders
        self._use = use
        self._charged_at = now

    def view(self, now: float) -> list[QuotaView]:
        """Return what is left of each quota that was charged.

        Raises:
            ReservationError: it was settled or cancelled before.
        """
        if self._charges is None:
            raise ReservationError("a reservation was looked at that is closed")
        views = []
        for counted, _ in self._charges:
            views.append(view_of(counted.quota, counted.meter, now))
        return views

    def settle(self, prompt_tokens: int, output_tokens: int, *, now: float) -> None:
        """Correct the estimate to what the engine has used.

        Raises:
            ReservationError: it was settled or cancelled before.
        """
        self._close(Use(self._use.requests, prompt_tokens, output_tokens), now)

    def cancel(self, now: float) -> None:
        """Give everything back: nothing reached the engine.

        Raises:
            ReservationError: it was settled or cancelled before.
        """
        self._close(Use(0, 0, 0), now)

    def _close(self, truth: Use, now: float) -> None:
        charges, self._charges = self._charges, None
        if charges is None:
            raise ReservationError("a reservation was settled or cancelled twice")
        for counted, cost in charges:
            more = counted.cost(truth) - cost
            if more > 0:
                counted.meter.charge(more, now)
            elif more < 0:
                counted.meter.refund(-more, now, charged_at=self._charged_at)
        for accounts, account in self._holders:
            accounts.close(account, now)
