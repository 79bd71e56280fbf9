"""Sliding window: no time as long as the window ever sees more than the limit.

Theory of operation. Keeping the moment of each request would be exact and without bound; so the window is cut into
`SLICES` equal slices, and one number is kept for each, and one more for the slice that has just begun. Any time as long
as the window lies inside these `SLICES + 1` slices, hence their sum is never less than what that time has seen: the
count errs only towards less. Use is forgotten between one window and one window and a slice after it, so a steady
stream gets at least `SLICES / (SLICES + 1)` of its limit, 97 %. The usual blend of two fixed windows, the old one
weighed by the part of it that is still in view, needs less memory, but lets almost twice the limit pass when requests
come unevenly: what came at the end of the old window is forgotten before its time.

    slice:     -32 ... -3 -2 -1  0 (now)        sum <= limit
                ^ leaves when the next begins   ^ what is charged goes here

    state               what passes                          when a slice begins
    sum 0               any cost up to `limit`, shared or not
    sum 0 .. limit      what still fits                      the oldest slice is forgotten
    debt above 0        nothing; the sum is at the limit     likewise, and as much debt moves in
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

SLICES = 32
"""Divides a second into whole microseconds, and so every window."""

_KEPT = SLICES + 1


class _Ring:
    """The slices that count, and the debt. While there is debt, `used` is at the limit, or above one just lowered."""

    __slots__ = ("counts", "debt", "limit", "slice", "used")

    def __init__(self, counts: list[int], *, used: int, debt: int, limit: int, at_slice: int) -> None:
        self.counts = counts
        self.used = used
        self.debt = debt
        self.limit = limit
        self.slice = at_slice

    def copy(self) -> _Ring:
        return _Ring(self.counts.copy(), used=self.used, debt=self.debt, limit=self.limit, at_slice=self.slice)

    def advance(self, target: int) -> None:
        """Let slices pass until the slice `target` begins."""
        while self.slice < target:
            left = target - self.slice
            if self.debt:
                if left >= _KEPT:
                    left -= self.skip_turns(min(left // _KEPT, self.debt // self.limit)) * _KEPT
                if left:
                    self.begin_slice()
            elif left >= _KEPT or not self.used:
                self.counts = [0] * _KEPT
                self.used = 0
                self.slice = target
            else:
                self.begin_slice()

    def skip_turns(self, turns: int) -> int:
        """Let whole turns of the ring pass at once, if each would only shrink the debt by the limit; return how many.

        Without it a long pause with a large debt would cost as much work as it has slices.
        """
        if self.used != self.limit:
            return 0
        self.slice += turns * _KEPT
        self.debt -= turns * self.limit
        return turns

    def begin_slice(self) -> None:
        self.slice += 1
        place = self.slice % _KEPT
        self.used -= self.counts[place]
        self.counts[place] = 0
        if self.debt:
            self.move_debt()

    def move_debt(self) -> None:
        """Count as much of the debt as there is room for as used in the slice of now."""
        fits = min(self.debt, max(0, self.limit - self.used))
        self.counts[self.slice % _KEPT] += fits
        self.used += fits
        self.debt -= fits

    def slice_with(self, room: int) -> int:
        """Return the slice at whose begin at most `room` units count."""
        ahead = self
        if self.debt:
            ahead = self.copy()
            while ahead.debt:
                # Each time: after a cut of the limit only a later turn can be passed.
                ahead.skip_turns((ahead.debt - 1) // ahead.limit)
                ahead.begin_slice()
        counted = 0
        for age in range(_KEPT):
            counted += ahead.counts[(ahead.slice - age) % _KEPT]
            if counted > room:
                return ahead.slice - age + _KEPT
        return ahead.slice


class SlidingWindow(Standing):
    """A `Meter` that counts the last window at every moment."""

    __slots__ = ("_at", "_length", "_ring", "_slice_ends", "allowance")

    def __init__(self, allowance: Allowance, now: float) -> None:
        self.allowance = allowance
        self._at = ticks(now)
        self._length = allowance.window_ticks // SLICES
        at_slice = self._at // self._length
        self._ring = _Ring([0] * _KEPT, used=0, debt=0, limit=allowance.limit_units, at_slice=at_slice)
        self._slice_ends = (at_slice + 1) * self._length

    def check(self, cost: int, now: float) -> Check:
        """See `Meter`."""
        ring = self._slide(now)
        counted, need = ring.used + ring.debt, cost * UNITS_PER_TOKEN
        if counted + need <= ring.limit:
            return PASS
        if cost > self.allowance.largest:
            return NEVER
        return Check(self._wait(max(0, ring.limit - need))) if counted else PASS

    def charge(self, cost: int, now: float) -> None:
        """See `Meter`."""
        ring = self._slide(now)
        units = cost * UNITS_PER_TOKEN
        if ring.used + units <= ring.limit:
            ring.counts[ring.slice % _KEPT] += units
            ring.used += units
        else:
            ring.debt += units
            ring.move_debt()

    def refund(self, cost: int, now: float, *, charged_at: float) -> None:
        """See `Meter`: debt first; else only from the slice it was charged in, if that still counts."""
        ring = self._slide(now)
        units = cost * UNITS_PER_TOKEN
        paid = min(units, ring.debt)
        ring.debt -= paid
        where = min(ticks(charged_at), self._at) // self._length
        if ring.slice - where < _KEPT:
            back = min(units - paid, ring.counts[where % _KEPT])
            ring.counts[where % _KEPT] -= back
            ring.used -= back

    def used(self, now: float) -> int:
        """See `Meter`."""
        ring = self._slide(now)
        return ceil_div(ring.used + ring.debt, UNITS_PER_TOKEN)

    def standing(self, now: float) -> tuple[int, float]:
        """See `Meter`."""
        ring = self._slide(now)
        counted = ring.used + ring.debt
        remaining = max((ring.limit - counted) // UNITS_PER_TOKEN, 0 if counted else 1)
        return remaining, self._wait(0) if counted else 0.0

    def reconfigure(self, allowance: Allowance, now: float) -> None:
        """See `Meter`: slices stay; with another window all that counts is taken for used just now."""
        ring = self._slide(now)
        if allowance.window_seconds != self.allowance.window_seconds:
            self._length = allowance.window_ticks // SLICES
            ring.slice = self._at // self._length
            self._slice_ends = (ring.slice + 1) * self._length
            ring.counts = [0] * _KEPT
            ring.counts[ring.slice % _KEPT] = ring.used
        self.allowance = allowance
        ring.limit = allowance.limit_units
        ring.move_debt()

    def recall(self, counted: Sequence[int]) -> None:
        """See `Meter`: the number of the slice, the debt, and what is used in each slice in the order of the ring."""
        if len(counted) != 2 + _KEPT or min(counted[1:]) < 0:
            raise ValueError("these are no counts of a sliding window")  # and its slices would never pay such a debt
        ring = self._ring
        ring.slice = counted[0]
        ring.debt, *ring.counts = (tokens * UNITS_PER_TOKEN for tokens in counted[1:])
        ring.used = sum(ring.counts)
        self._slice_ends = (ring.slice + 1) * self._length

    def _slide(self, now: float) -> _Ring:
        at = int(now * TICKS_PER_SECOND)
        if at > self._at:
            self._at = at
            if at >= self._slice_ends:
                self._ring.advance(at // self._length)
                self._slice_ends = (self._ring.slice + 1) * self._length
        return self._ring

    def _wait(self, room: int) -> float:
        """Return the time until at most `room` units count; more do now."""
        return seconds_until(self._ring.slice_with(room) * self._length - self._at)
