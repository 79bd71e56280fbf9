"""How long a failing backend waits before its next try: exponential per key, with jitter, forgotten on success.

A pass makes many requests. Where each may fail by chance, most passes fail, but each leaves less to do for the next. So
a failure further on than any since the last success counts as the first one again: delays grow while nothing moves. A
pass has a few steps, so they start over a few times at most.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 300.0
JITTER = 0.2
"""Each delay is spread over ± this share, so that backends which failed together do not return together."""


K = TypeVar("K", bound=Hashable)


class Backoff(Generic[K]):
    """Counts failures in a row per key.

    Args:
        random: Uniform numbers in [0, 1).
    """

    def __init__(self, *, random: Callable[[], float]) -> None:
        self._random = random
        self._failures: dict[K, int] = {}
        self._furthest: dict[K, int] = {}

    def failed(self, key: K, *, reached: int = 0) -> float:
        """Count one more failure and return the seconds to wait.

        Args:
            key: What failed.
            reached: How many steps were done before.
        """
        further = reached > self._furthest.get(key, 0)
        if further:
            self._furthest[key] = reached
        failures = 0 if further else self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = FIRST_DELAY_SECONDS * 2.0 ** min(failures, 32)
        spread = 1.0 + JITTER * (2.0 * self._random() - 1.0)
        return min(delay * spread, LONGEST_DELAY_SECONDS)

    def reset(self, key: K) -> None:
        """Forget the failures of a key: it succeeded, or it is gone."""
        self._failures.pop(key, None)
        self._furthest.pop(key, None)

    def failures(self, key: K) -> int:
        """Return the failures in a row since it got further."""
        return self._failures.get(key, 0)
