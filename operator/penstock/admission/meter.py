"""What every rate algorithm offers, and the exact arithmetic they share.

Four algorithms answer the same three questions: may this much pass now, when could it pass, and what is left. They
differ only in how use is forgotten over time. A `Meter` counts one quota of one holder.

    check ──passes──> charge ──more was used──> charge again: may make debt
      │                  └─────less was used──> refund
      └──wait, or never──> nothing is changed

Debt is what was charged beyond the limit, since the true cost of a request is known only at its end. It is paid from
what the limit yields over time, and until it is paid nothing passes.

Time is counted in whole microseconds and amounts in whole millionths of a token, so a meter that runs for months is
exactly as right as a new one: nothing is ever rounded away, however often it is asked. Waiting times are rounded up,
so who waits as long as told is never early. A clock that steps back is taken to stand still.

A limit may be shared by replicas, each with its `share`. What is larger than the share but not than the whole limit
passes where nothing else is counted, and leaves debt: so the average holds, and no request is refused for ever only
because there are many replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

TICKS_PER_SECOND = 1_000_000
UNITS_PER_TOKEN = 1_000_000
"""The grain in which amounts are counted; a token here is one of whatever the quota counts."""


@dataclass(frozen=True, slots=True)
class Check:
    """Whether something may pass.

    Attributes:
        wait_seconds: 0 when it may pass now, `inf` when it never will, else when to ask again.
        delay_seconds: How much later to start what may pass: only an even pace asks for it.
    """

    wait_seconds: float
    delay_seconds: float = 0.0


PASS = Check(0.0)
NEVER = Check(inf)


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much a meter lets pass; what follows from it is worked out once, since every request needs it.

    Attributes:
        limit: Tokens per window, for all replicas together.
        window_seconds: Length of the window.
        burst: Tokens that may pass at once, for the two buckets only; None means `limit`.
        share: The part of this replica, 0 to 1.
        largest: The cost of the largest request that can ever pass.
        window_ticks: The window in microseconds.
        limit_units: This replica's part of `limit` in millionths of a token: never 0, so that every debt is paid.
        capacity_units: This replica's part of what may pass at once, likewise.
        shown: The tokens that a client may count on when everything is there, at least 1.
    """

    limit: int
    window_seconds: int
    burst: int | None = None
    share: float = 1.0
    largest: int = field(init=False, repr=False, compare=False)
    window_ticks: int = field(init=False, repr=False, compare=False)
    limit_units: int = field(init=False, repr=False, compare=False)
    capacity_units: int = field(init=False, repr=False, compare=False)
    shown: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"a share is between 0 and 1, not {self.share}")
        part = int(self.share * UNITS_PER_TOKEN)
        largest = self.limit if self.burst is None else self.burst
        limit_units, capacity_units = max(1, self.limit * part), max(1, largest * part)
        for name, value in (
            ("largest", largest),
            ("window_ticks", self.window_seconds * TICKS_PER_SECOND),
            ("limit_units", limit_units),
            ("capacity_units", capacity_units),
            ("shown", max(1, min(limit_units, capacity_units) // UNITS_PER_TOKEN)),
        ):
            object.__setattr__(self, name, value)


class Meter(Protocol):
    """Counts one quota of one holder. Costs are whole tokens, `now` is seconds of one monotonic clock."""

    allowance: Allowance

    def check(self, cost: int, now: float) -> Check:
        """Say whether `cost` may pass now, and when if not."""

    def charge(self, cost: int, now: float) -> None:
        """Count `cost` as used, be there room or not."""

    def refund(self, cost: int, now: float, *, charged_at: float) -> None:
        """Give back `cost` of what was charged at `charged_at`; what is forgotten by now is not given back twice."""

    def used(self, now: float) -> int:
        """Return the tokens that are counted now, debt included, rounded up."""

    def standing(self, now: float) -> tuple[int, float]:
        """Return what is told of a meter in every answer: `remaining` and `reset_seconds`."""

    def remaining(self, now: float) -> int:
        """Return the largest cost that passes for certain now; at least 1 where nothing is counted."""

    def reset_seconds(self, now: float) -> float:
        """Return the time until everything is there again if nothing else is charged; 0 when it is."""

    def reconfigure(self, allowance: Allowance, now: float) -> None:
        """Count on under another allowance; what is counted stays counted."""

    def recall(self, counted: Sequence[int]) -> None:
        """Take over what a shared store has counted, in whole tokens, under the same allowance and for all replicas.

        Each algorithm says what the numbers are; a store keeps them as they are here.

        Raises:
            ValueError, IndexError: they are no such numbers.
        """


class Standing:
    """Each part of what `standing` tells, for those who want only one."""

    __slots__ = ()

    def standing(self, now: float) -> tuple[int, float]:
        """See `Meter`."""
        raise NotImplementedError

    def remaining(self, now: float) -> int:
        """See `Meter`."""
        return self.standing(now)[0]

    def reset_seconds(self, now: float) -> float:
        """See `Meter`."""
        return self.standing(now)[1]


def ticks(now: float) -> int:
    """Return a time in whole microseconds, rounded down."""
    return int(now * TICKS_PER_SECOND)


def moment(at: int) -> float:
    """Return a time in seconds whose `ticks` are `at`, also for a clock that counts from 1970."""
    return (at + 0.5) / TICKS_PER_SECOND


def seconds_until(distance: int) -> float:
    """Return a distance in microseconds as seconds, long enough for a time of any fraction of one to reach it."""
    return (distance + 1) / TICKS_PER_SECOND if distance > 0 else 0.0


def ceil_div(dividend: int, divisor: int) -> int:
    """Return the quotient rounded up."""
    return -(-dividend // divisor)
