"""The pace: how many requests per second may go to the engine, whoever they belong to.

A token bucket that fills at the rate R and holds two seconds of it, at least one token. It only says when the next one
may go; who that is decides the queue, so priorities hold, and nobody is refused for it. A request for several choices
takes as many tokens; one for more than the bucket holds goes when it is full, and those behind it wait for the debt,
which is never more than ten seconds of R: else one request for a thousand choices would keep everybody out for an hour.

A bucket that is given another rate keeps its tokens as far as they fit: a change is no burst.
"""

from __future__ import annotations

BURST_SECONDS = 2.0
LEAST_BURST = 1.0
DEBT_SECONDS = 10.0
_ROUNDING = 1e-6
"""Parts of a token that a wake-up may be too early for."""


class Pace:
    """See the module's docstring.

    Attributes:
        per_second: R; None for no bound.
    """

    __slots__ = ("_at", "_tokens", "per_second")

    def __init__(self) -> None:
        self.per_second: float | None = None
        self._tokens = 0.0
        self._at = 0.0

    def set(self, per_second: float | None, now: float) -> None:
        """Put another rate in force.

        Raises:
            ValueError: it is not above 0.
        """
        if per_second is not None and not per_second > 0:
            raise ValueError(f"the rate must be above 0, or None for no bound, not {per_second}")
        if per_second == self.per_second:
            return
        if self.per_second is None:
            self._tokens = LEAST_BURST  # nobody knows what went just before
        else:
            self._fill(now)
        self.per_second = per_second
        self._at = now
        self._tokens = max(min(self._tokens, self._burst), self._lowest)

    def wait_seconds(self, requests: int, now: float) -> float:
        """Return when so many requests may go, from now; 0 for at once."""
        if self.per_second is None:
            return 0.0
        self._fill(now)
        missing = min(requests, self._burst) - self._tokens
        return missing / self.per_second if missing > _ROUNDING else 0.0

    def queue_seconds(self, requests: int, now: float) -> float:
        """Return how long it takes until so many requests have gone, one after the other."""
        if self.per_second is None:
            return 0.0
        self._fill(now)
        return max(0.0, requests - self._tokens) / self.per_second

    def take(self, requests: int, now: float) -> None:
        """So many requests go."""
        if self.per_second is not None:
            self._fill(now)
            self._tokens = max(self._tokens - requests, self._lowest)

    @property
    def _burst(self) -> float:
        return LEAST_BURST if self.per_second is None else max(LEAST_BURST, BURST_SECONDS * self.per_second)

    @property
    def _lowest(self) -> float:
        return 0.0 if self.per_second is None else -max(LEAST_BURST, DEBT_SECONDS * self.per_second)

    def _fill(self, now: float) -> None:
        if self.per_second is not None and now > self._at:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self.per_second)
            self._at = now
