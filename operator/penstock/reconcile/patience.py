"""How long something is waited for that should pass by itself and may not: the place of a child that is being deleted.

Usually it is free within a moment, and its event tells. When somebody's finalizer holds the old child, nobody knows how
long: each wait is as long as all before it together, and after `TELL_SECONDS` the status says what is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

FIRST_SECONDS = 0.5
LONGEST_SECONDS = 30.0
TELL_SECONDS = 3.0

K = TypeVar("K", bound=Hashable)


class Patience(Generic[K]):
    """Knows since when each key has been waiting.

    Args:
        clock: A clock that never goes back, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[K, float] = {}

    def lasted_seconds(self, key: K) -> float:
        """Return how long a key has been waiting; it begins now if it was not."""
        now = self._clock()
        return now - self._since.setdefault(key, now)

    def over(self, key: K) -> None:
        """Take note that a key waits no longer."""
        self._since.pop(key, None)


def look_again_seconds(lasted_seconds: float) -> float:
    """Return when to look again after a wait has lasted for so long: doubling from the first to the longest."""
    return min(max(FIRST_SECONDS, lasted_seconds), LONGEST_SECONDS)
