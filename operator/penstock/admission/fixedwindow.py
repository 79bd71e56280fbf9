"""Fixed window: a count that starts anew with each window of the clock.

Theory of operation. The clock is cut into windows that begin at its multiples of the window's length; each lets `limit`
tokens pass. One number is enough, and every holder's window ends at the same moment, which people find easy to reason
about. The price is the edge: `limit` tokens at the end of one window and `limit` at the beginning of the next pass
within a moment. So any time as long as a window sees up to twice the limit, never more; who cannot have that takes the
sliding window.

    state               what passes                                       at the end of the window
    used 0              any cost up to `limit`, shared or not             stays
    used 0 .. limit     what still fits                                   used becomes 0
    debt above 0        nothing; used is at the limit                     up to `limit` of the debt becomes used
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


class FixedWindow(Standing):
    """A `Meter` that counts from one full window to the next."""

    __slots__ = ("_at", "_begins", "_debt", "_length", "_limit", "_used", "allowance")

    def __init__(self, allowance: Allowance, now: float) -> None:
        self._at = ticks(now)
        self._used = 0
        self._debt = 0
        self._adopt(allowance)

    def check(self, cost: int, now: float) -> Check:
        """See `Meter`."""
        self._roll(now)
        counted, need = self._used + self._debt, cost * UNITS_PER_TOKEN
        if counted + need <= self._limit:
            return PASS
        if cost > self.allowance.largest:
            return NEVER
        return Check(self._wait(max(0, self._limit - need))) if counted else PASS

    def charge(self, cost: int, now: float) -> None:
        """See `Meter`."""
        self._roll(now)
        self._debt += cost * UNITS_PER_TOKEN
        self._move_debt()

    def refund(self, cost: int, now: float, *, charged_at: float) -> None:
        """See `Meter`: debt first; else only what the window of now has counted."""
        self._roll(now)
        units = cost * UNITS_PER_TOKEN
        paid = min(units, self._debt)
        self._debt -= paid
        if ticks(charged_at) >= self._begins:
            self._used = max(0, self._used - (units - paid))

    def used(self, now: float) -> int:
        """See `Meter`."""
        self._roll(now)
        return ceil_div(self._used + self._debt, UNITS_PER_TOKEN)

    def standing(self, now: float) -> tuple[int, float]:
        """See `Meter`."""
        self._roll(now)
        counted = self._used + self._debt
        remaining = max((self._limit - counted) // UNITS_PER_TOKEN, 0 if counted else 1)
        return remaining, self._wait(0) if counted else 0.0

    def reconfigure(self, allowance: Allowance, now: float) -> None:
        """See `Meter`: what is used counts in the window of now, however long it is from here on."""
        self._roll(now)
        self._adopt(allowance)
        self._move_debt()

    def recall(self, counted: Sequence[int]) -> None:
        """See `Meter`: when the window begins, in microseconds, what is used in it, and the debt."""
        self._begins = counted[0]
        self._used, self._debt = (tokens * UNITS_PER_TOKEN for tokens in counted[1:])

    def _adopt(self, allowance: Allowance) -> None:
        self.allowance = allowance
        self._limit = allowance.limit_units
        self._length = allowance.window_ticks
        self._begins = self._at - self._at % self._length

    def _move_debt(self) -> None:
        """Count as much of the debt as there is room for as used in the window of now."""
        fits = min(self._debt, max(0, self._limit - self._used))
        self._used += fits
        self._debt -= fits

    def _roll(self, now: float) -> None:
        at = int(now * TICKS_PER_SECOND)
        if at <= self._at:
            return
        self._at = at
        passed = (at - self._begins) // self._length
        if passed:
            self._begins += passed * self._length
            self._debt = max(0, self._debt - (passed - 1) * self._limit)
            self._used = 0
            self._move_debt()

    def _wait(self, room: int) -> float:
        """Return the time until a window begins with at most `room` units used by debt."""
        windows = 1 + max(0, ceil_div(self._debt - room, self._limit))
        return seconds_until(self._begins + windows * self._length - self._at)
