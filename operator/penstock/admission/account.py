"""The meters of one holder: of a tenant, of an address, of the backend or of the replica."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from penstock.admission.fixedwindow import FixedWindow
from penstock.admission.leakybucket import LeakyBucket
from penstock.admission.meter import Allowance, Meter
from penstock.admission.occupancy import Occupancy
from penstock.admission.slidingwindow import SlidingWindow
from penstock.admission.tokenbucket import TokenBucket
from penstock.api.ratelimits import OF_CONNECTIONS, QuotaAlgorithm, QuotaUnit, RateLimit

METERS: Final[dict[QuotaAlgorithm, Callable[[Allowance, float], Meter]]] = {
    QuotaAlgorithm.TOKEN_BUCKET: TokenBucket,
    QuotaAlgorithm.LEAKY_BUCKET: LeakyBucket,
    QuotaAlgorithm.FIXED_WINDOW: FixedWindow,
    QuotaAlgorithm.SLIDING_WINDOW: SlidingWindow,
}

QuotasOf = Callable[[str], Sequence[RateLimit]]
"""Gives the quotas of a holder by its name."""


class Use(msgspec.Struct, frozen=True, gc=False):
    """What a request takes; a connection takes one of `requests`."""

    requests: int
    prompt_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        """Tokens of prompt and answer."""
        return self.prompt_tokens + self.output_tokens


_COST: Final[dict[QuotaUnit, Callable[[Use], int]]] = {
    QuotaUnit.REQUESTS: attrgetter("requests"),
    QuotaUnit.CONNECTIONS: attrgetter("requests"),
    QuotaUnit.OPEN_CONNECTIONS: attrgetter("requests"),
    QuotaUnit.TOKENS: attrgetter("tokens"),
    QuotaUnit.PROMPT_TOKENS: attrgetter("prompt_tokens"),
}


class Counted:
    """One quota of one holder, and what is counted against it.

    Attributes:
        quota: What is allowed.
        meter: What is counted; another one once the algorithm changes, so it is not kept elsewhere.
        cost: Gives what a use costs in the quota's unit.
    """

    __slots__ = ("cost", "meter", "quota")

    def __init__(self, quota: RateLimit, share: float, now: float) -> None:
        self.quota = quota
        self.cost = _COST[quota.unit]
        self.meter = _made(quota)(allowance_of(quota, share), now)

    def adopt(self, quota: RateLimit, share: float, now: float) -> None:
        """Count on under a changed quota of the same name and unit, or another share."""
        allowance = allowance_of(quota, share)
        if _made(quota) is _made(self.quota):
            if allowance != self.meter.allowance:
                self.meter.reconfigure(allowance, now)
        else:
            meter = _made(quota)(allowance, now)
            meter.charge(self.meter.used(now), now)
            self.meter = meter
        self.quota = quota


class Account:
    """All that is counted for one holder.

    Attributes:
        key: Name of the holder among those of its kind.
        requests: What each request is counted against.
        connections: What each connection is counted against.
        source: Where its quotas came from: another one means that they may have changed.
        share: The part of limits that this replica has.
        open: Reservations that are neither settled nor cancelled.
        ticket: Its place among the accounts that may be forgotten; 0 for none.
    """

    __slots__ = ("connections", "key", "open", "requests", "share", "source", "ticket")

    def __init__(self, key: str, quotas_of: QuotasOf, *, share: float, now: float) -> None:
        self.key = key
        self.open = 0
        self.ticket = 0
        self.requests: tuple[Counted, ...] = ()
        self.connections: tuple[Counted, ...] = ()
        self.source = quotas_of
        self.share = share
        self._take(quotas_of(key), now)

    def adopt(self, quotas_of: QuotasOf, *, share: float, now: float) -> None:
        """Count on under other quotas or another share; what has the same name and unit keeps what is counted."""
        if quotas_of is not self.source:
            quotas: Iterable[RateLimit] = quotas_of(self.key)
        else:
            quotas = [counted.quota for counted in (*self.requests, *self.connections)]
        self.source = quotas_of
        self.share = share
        self._take(quotas, now)

    def reset_seconds(self, now: float) -> float:
        """Return the time until nothing is counted any more, if nothing else comes."""
        return max((counted.meter.reset_seconds(now) for counted in (*self.requests, *self.connections)), default=0.0)

    def _take(self, quotas: Iterable[RateLimit], now: float) -> None:
        known = {(old.quota.name, old.quota.unit): old for old in (*self.requests, *self.connections)}
        taken = []
        for quota in quotas:
            counted = known.get((quota.name, quota.unit))
            if counted is None:
                counted = Counted(quota, self.share, now)
            else:
                counted.adopt(quota, self.share, now)
            taken.append(counted)
        self.requests = tuple(one for one in taken if one.quota.unit not in OF_CONNECTIONS)
        self.connections = tuple(one for one in taken if one.quota.unit in OF_CONNECTIONS)


def cost_of(quota: RateLimit, use: Use) -> int:
    """Return what a use costs in the quota's unit."""
    return _COST[quota.unit](use)


def _made(quota: RateLimit) -> Callable[[Allowance, float], Meter]:
    """Return what counts a quota."""
    return Occupancy if quota.unit is QuotaUnit.OPEN_CONNECTIONS else METERS[quota.algorithm]


def allowance_of(quota: RateLimit, share: float = 1.0) -> Allowance:
    """Return how much of a quota passes where a part of it is counted."""
    return Allowance(limit=quota.limit, window_seconds=quota.window_seconds, burst=quota.burst, share=share)
