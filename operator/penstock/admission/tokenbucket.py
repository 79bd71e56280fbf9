"""Token bucket: the average holds, and a burst may pass at once.

Theory of operation. A bucket holds at most `burst` tokens and gains `limit` tokens per window, evenly. Who passes takes
tokens out; who finds too few waits until they are there. So in any time of length t at most `burst + limit * t /
window` tokens pass, and over a long time `limit` per window. It is the classical meter of network policing, where the
same rule is also told as one theoretical arrival time per flow.

    level      what passes
    full       any cost up to `burst`, shared or not
    0 .. full  any cost up to the level
    below 0    nothing: a debt is being paid

A request that used less than it was charged gives tokens back, never above `burst`. What it gives back was not used
before, so the long average stays exact; a short time may see that much more than the formula above.
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


class TokenBucket(Standing):
    """A `Meter` whose room fills up evenly. It starts full.

    The level is counted in units times the ticks of a window, so that each tick adds a whole number.
    """

    __slots__ = ("_at", "_capacity", "_gain", "_level", "_token", "allowance")

    def __init__(self, allowance: Allowance, now: float) -> None:
        self._at = ticks(now)
        self._adopt(allowance)
        self._level = self._capacity

    def check(self, cost: int, now: float) -> Check:
        """See `Meter`."""
        level = self._fill(now)
        need = cost * self._token
        if need <= level:
            return PASS
        if cost > self.allowance.largest:
            return NEVER
        missing = min(need, self._capacity) - level
        return Check(seconds_until(ceil_div(missing, self._gain))) if missing > 0 else PASS

    def charge(self, cost: int, now: float) -> None:
        """See `Meter`."""
        self._level = self._fill(now) - cost * self._token

    def refund(self, cost: int, now: float, *, charged_at: float) -> None:  # noqa: ARG002 - the level has no memory
        """See `Meter`."""
        self._level = min(self._capacity, self._fill(now) + cost * self._token)

    def used(self, now: float) -> int:
        """See `Meter`."""
        return ceil_div(self._capacity - self._fill(now), self._token)

    def standing(self, now: float) -> tuple[int, float]:
        """See `Meter`."""
        level = self._fill(now)
        remaining = max(level // self._token, 1 if level == self._capacity else 0)
        return remaining, seconds_until(ceil_div(self._capacity - level, self._gain))

    def reconfigure(self, allowance: Allowance, now: float) -> None:
        """See `Meter`: the tokens in the bucket stay, as far as they fit; it is not filled."""
        level, token = self._fill(now), self._token
        self._adopt(allowance)
        self._level = min(self._capacity, level * self._token // token)

    def recall(self, counted: Sequence[int]) -> None:
        """See `Meter`: whole tokens in the bucket, and parts of one divided by the window."""
        self._level = counted[0] * self._token + counted[1] * UNITS_PER_TOKEN

    def _adopt(self, allowance: Allowance) -> None:
        self.allowance = allowance
        self._gain = allowance.limit_units
        self._token = UNITS_PER_TOKEN * allowance.window_ticks
        self._capacity = allowance.capacity_units * allowance.window_ticks

    def _fill(self, now: float) -> int:
        at = int(now * TICKS_PER_SECOND)
        if at > self._at:
            self._level = min(self._capacity, self._level + (at - self._at) * self._gain)
            self._at = at
        return self._level
