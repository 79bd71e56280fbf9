"""Leaky bucket: everything passes at an even pace, and the backlog is bounded.

Theory of operation. What passes is poured into a bucket that drains `limit` tokens per window, evenly, and holds at
most `burst`. In its form as a queue, which this is, a request starts when all that was poured in before it has drained:
`delay_seconds` says how much later that is. So two starts lie at least the time apart that the first of them takes to
drain, however unevenly the requests come. It is the traffic shaper, where the token bucket is the policer: the same
level, seen from the other side.

    backlog        what passes
    0              any cost up to `burst`, shared or not, at once
    0 .. burst     what still fits, after a delay of backlog / drain
    above burst    nothing: a debt is being paid

The longest delay is `burst * window / limit`. A request that used less than it was charged shortens the backlog for
those that come after it; those that are waiting keep the start they were told.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.admission.meter import (
    NEVER,
    PASS,
    TICKS_PER_SECOND,
    UNITS_PER_TOKEN,
    Allowance,
    Check,
    Standing,
    ceil_div,
    seconds_until,
    ticks,
)


class LeakyBucket(Standing):
    """A `Meter` that spreads bursts out. It starts empty.

    The backlog is counted in units times the ticks of a window, so that each tick drains a whole number.
    """

    __slots__ = ("_at", "_backlog", "_capacity", "_drain", "_token", "allowance")

    def __init__(self, allowance: Allowance, now: float) -> None:
        self._at = ticks(now)
        self._backlog = 0
        self._adopt(allowance)

    def check(self, cost: int, now: float) -> Check:
        """See `Meter`."""
        backlog, need = self._leak(now), cost * self._token
        if backlog + need <= self._capacity:
            return Check(0.0, ceil_div(backlog, self._drain) / TICKS_PER_SECOND) if backlog else PASS
        if cost > self.allowance.largest:
            return NEVER
        excess = backlog - max(0, self._capacity - need)
        return Check(seconds_until(ceil_div(excess, self._drain))) if excess > 0 else PASS

    def charge(self, cost: int, now: float) -> None:
        """See `Meter`."""
        self._backlog = self._leak(now) + cost * self._token

    def refund(self, cost: int, now: float, *, charged_at: float) -> None:  # noqa: ARG002 - the backlog has no memory
        """See `Meter`."""
        self._backlog = max(0, self._leak(now) - cost * self._token)

    def used(self, now: float) -> int:
        """See `Meter`."""
        return ceil_div(self._leak(now), self._token)

    def standing(self, now: float) -> tuple[int, float]:
        """See `Meter`."""
        backlog = self._leak(now)
        remaining = max((self._capacity - backlog) // self._token, 0 if backlog else 1)
        return remaining, seconds_until(ceil_div(backlog, self._drain))

    def reconfigure(self, allowance: Allowance, now: float) -> None:
        """See `Meter`: the tokens that wait stay, and drain at the new pace."""
        backlog, token = self._leak(now), self._token
        self._adopt(allowance)
        self._backlog = ceil_div(backlog * self._token, token)

    def recall(self, counted: Sequence[int]) -> None:
        """See `Meter`: whole tokens that wait, and parts of one divided by the window."""
        self._backlog = counted[0] * self._token + counted[1] * UNITS_PER_TOKEN

    def _adopt(self, allowance: Allowance) -> None:
        self.allowance = allowance
        self._drain = allowance.limit_units
        self._token = UNITS_PER_TOKEN * allowance.window_ticks
        self._capacity = allowance.capacity_units * allowance.window_ticks

    def _leak(self, now: float) -> int:
        at = int(now * TICKS_PER_SECOND)
        if at > self._at:
            self._backlog = max(0, self._backlog - (at - self._at) * self._drain)
            self._at = at
        return self._backlog
