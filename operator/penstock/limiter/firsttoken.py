"""How long streams took from their admission to the first byte of the answer, lately.

Noting one is an entry in a bounded list; what it adds up to is worked out when somebody asks.
"""

from __future__ import annotations

from collections import deque

WINDOW_SECONDS = 10.0
KEPT = 1000
"""Requests; more than that in a window are told from the last ones."""

LEAST = 3
"""Fewer requests than that say nothing."""

PERCENT = 95


class FirstTokens:
    """See the module's docstring."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=KEPT)

    def note(self, seconds: float, now: float) -> None:
        """An answer has begun so many seconds after its request was admitted."""
        self._seen.append((now, seconds))

    def percentile_seconds(self, now: float) -> float | None:
        """Return the time that all but a twentieth of the last ones took at most; None when there were too few."""
        seen = self._seen
        while seen and now - seen[0][0] > WINDOW_SECONDS:
            seen.popleft()
        if len(seen) < LEAST:
            return None
        times = sorted(seconds for _, seconds in seen)
        return times[-(-PERCENT * len(times) // 100) - 1]
