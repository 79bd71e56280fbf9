"""The accounts of all tenants or all addresses: made when first needed, bounded, and forgotten without harm.

Anyone can come with a new address, so memory must be bounded, and what is dropped must not be what restrains somebody.

    state      what it is                                          next
    fresh      asked for, nothing charged: not kept                opened -> open
    open       has requests or connections that will end           the last one closed -> resting
    resting    kept until everything has come back to it           opened -> open; time passes -> idle
    idle       as good as a fresh one: forgotten when room is needed

When there is no room, an idle account goes. When none is idle, the one that nobody has used for the longest time goes,
counted in `overruns`: then there are more active holders than the bound, and the bound must be raised.
Which account becomes idle next is known without a search: when an account begins to rest its time is known, and a heap
keeps these times. An entry whose account has been used since has an old ticket and is skipped.

A change of quotas or of the share reaches an account when it is used next, as of the moment of the change.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from itertools import count

from penstock.admission.account import Account, QuotasOf

MAXIMUM_ACCOUNTS = 10_000
_SLACK = 64
"""Old entries the heap may hold besides one for each account, before they are swept out."""


class Accounts:
    """A bounded map of accounts.

    Attributes:
        overruns: Accounts dropped although something was counted in them.
    """

    def __init__(self, maximum: int = MAXIMUM_ACCOUNTS) -> None:
        self.overruns = 0
        self._maximum = maximum
        self._kept: OrderedDict[str, Account] = OrderedDict()
        self._resting: list[tuple[float, int, Account]] = []
        self._tickets = count(1)
        self._quotas_of: QuotasOf | None = None
        self._share = 1.0
        self._changed_at = 0.0
        self._ranked_before_change = False

    def __len__(self) -> int:
        return len(self._kept)

    def configure(self, quotas_of: QuotasOf | None, *, share: float, now: float) -> None:
        """Take over who has which quotas, None for nobody any, and this replica's share."""
        self._quotas_of = quotas_of
        self._share = share
        self._changed_at = now
        self._ranked_before_change = True
        if quotas_of is None:
            self._kept.clear()
            self._resting.clear()

    def of(self, key: str, now: float) -> Account | None:
        """Return the account of a holder, None if nobody has quotas; a fresh one is not kept yet."""
        quotas_of = self._quotas_of
        if quotas_of is None:
            return None
        account = self._kept.get(key)
        if account is None:
            return Account(key, quotas_of, share=self._share, now=now)
        self._kept.move_to_end(key)
        self._refresh(account, quotas_of)
        return account

    def open(self, account: Account, now: float) -> None:
        """Keep the account until as many times closed."""
        self._keep(account, now)
        account.open += 1
        account.ticket = 0

    def close(self, account: Account, now: float) -> None:
        """Take note that a reservation was settled or cancelled."""
        account.open -= 1
        if account.open == 0 and self._kept.get(account.key) is account:
            self._rest(account, now)

    def _keep(self, account: Account, now: float) -> None:
        if self._kept.get(account.key) is account:
            return
        if len(self._kept) >= self._maximum:
            self._make_room(now)
        self._kept[account.key] = account

    def _make_room(self, now: float) -> None:
        if self._ranked_before_change:  # it may have put off when somebody is idle
            self._rank_all(now)
        if self._forgets_idle(now):
            return
        _, oldest = self._kept.popitem(last=False)
        oldest.ticket = 0
        self.overruns += 1

    def _forgets_idle(self, now: float) -> bool:
        resting = self._resting
        while resting:
            idle_at, ticket, account = resting[0]
            if account.ticket == ticket:
                if idle_at > now:
                    return False
                heappop(resting)
                del self._kept[account.key]
                account.ticket = 0
                return True
            heappop(resting)
        return False

    def _rest(self, account: Account, now: float) -> None:
        if len(self._resting) > 2 * len(self._kept) + _SLACK:
            self._resting = [entry for entry in self._resting if entry[2].ticket == entry[1]]
            heapify(self._resting)
        account.ticket = next(self._tickets)
        heappush(self._resting, (now + account.reset_seconds(now), account.ticket, account))

    def _rank_all(self, now: float) -> None:
        """Find out anew when each account becomes idle: another limit may have brought it nearer."""
        self._ranked_before_change = False
        self._resting.clear()
        for account in self._kept.values():
            if self._quotas_of is not None:
                self._refresh(account, self._quotas_of)
            if account.open == 0:
                self._rest(account, now)

    def _refresh(self, account: Account, quotas_of: QuotasOf) -> None:
        if account.source is not quotas_of or account.share != self._share:
            account.adopt(quotas_of, share=self._share, now=self._changed_at)
