"""How many events there were lately, in bounded memory whatever their number."""

from __future__ import annotations

WINDOW_SECONDS = 10


class Recent:
    """Counts events of the last `WINDOW_SECONDS`, in whole seconds of the clock."""

    __slots__ = ("_counts", "_second", "_total")

    def __init__(self) -> None:
        self._counts = [0] * WINDOW_SECONDS
        self._second = 0
        self._total = 0

    def count(self, now: float) -> None:
        """Count one event."""
        if int(now) != self._second:
            self._move(now)
        self._counts[self._second % WINDOW_SECONDS] += 1
        self._total += 1

    def total(self, now: float) -> int:
        """Return how many there were."""
        self._move(now)
        return self._total

    def _move(self, now: float) -> None:
        """Empty the slots of seconds that have begun since."""
        second = int(now)
        passed = second - self._second
        if passed <= 0:
            return
        for one in range(self._second + 1, self._second + 1 + min(passed, WINDOW_SECONDS)):
            self._total -= self._counts[one % WINDOW_SECONDS]
            self._counts[one % WINDOW_SECONDS] = 0
        self._second = second
