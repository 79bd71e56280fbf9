"""A connection that passed its quotas: what counts those that are open gets it back at its end.

What counts how many are opened keeps it: that has happened.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.admission.account import Account, Counted
from penstock.admission.accounts import Accounts
from penstock.admission.reservation import ReservationError
from penstock.api.ratelimits import QuotaUnit


class Connected:
    """An open connection, as its quotas know it; closed exactly once.

    Attributes:
        delay_seconds: How much later to serve it.
    """

    __slots__ = ("_at", "_holders", "_open", "delay_seconds")

    def __init__(
        self,
        counted: Iterable[Counted],
        holders: list[tuple[Accounts, Account]],
        *,
        delay_seconds: float,
        now: float,
    ) -> None:
        self.delay_seconds = delay_seconds
        self._open: list[Counted] | None = [one for one in counted if one.quota.unit is QuotaUnit.OPEN_CONNECTIONS]
        self._holders = holders
        self._at = now

    def close(self, now: float) -> None:
        """It has ended.

        Raises:
            ReservationError: it had before.
        """
        counted, self._open = self._open, None
        if counted is None:
            raise ReservationError("a connection was closed twice")
        for one in counted:
            one.meter.refund(1, now, charged_at=self._at)
        for accounts, account in self._holders:
            accounts.close(account, now)
