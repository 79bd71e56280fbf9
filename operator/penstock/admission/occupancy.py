"""Occupancy: how many of something there are at the same time.

The one `Meter` that time does not touch: what is charged stays until it is given back. So it can tell no time at which
there is room again, and names one second, after which a client may look.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.admission.meter import NEVER, PASS, UNITS_PER_TOKEN, Allowance, Check, Standing

LOOK_AGAIN = Check(1.0)


class Occupancy(Standing):
    """A `Meter` of what is there now; algorithm, window and burst of its quota do not matter."""

    __slots__ = ("_there", "allowance")

    def __init__(self, allowance: Allowance, now: float) -> None:  # noqa: ARG002 - time does not matter
        self.allowance = allowance
        self._there = 0

    def check(self, cost: int, now: float) -> Check:  # noqa: ARG002
        """See `Meter`."""
        if not self._there or (self._there + cost) * UNITS_PER_TOKEN <= self.allowance.limit_units:
            return PASS if cost <= self.allowance.limit else NEVER
        return LOOK_AGAIN

    def charge(self, cost: int, now: float) -> None:  # noqa: ARG002
        """See `Meter`."""
        self._there += cost

    def refund(self, cost: int, now: float, *, charged_at: float) -> None:  # noqa: ARG002
        """See `Meter`."""
        self._there = max(0, self._there - cost)

    def used(self, now: float) -> int:  # noqa: ARG002
        """See `Meter`."""
        return self._there

    def standing(self, now: float) -> tuple[int, float]:  # noqa: ARG002
        """See `Meter`; nobody knows when there is room, so it is the time after which to look."""
        remaining = max(self.allowance.limit_units // UNITS_PER_TOKEN - self._there, 0 if self._there else 1)
        return remaining, LOOK_AGAIN.wait_seconds if self._there else 0.0

    def reconfigure(self, allowance: Allowance, now: float) -> None:  # noqa: ARG002
        """See `Meter`."""
        self.allowance = allowance

    def recall(self, counted: Sequence[int]) -> None:
        """See `Meter`: how many there are."""
        self._there = counted[0]
