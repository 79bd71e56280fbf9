"""Keeps a fight with another writer of the same child from going on at full speed.

Edits by people, and by tools now and then, are put right at once. Something that puts its own back just as fast (a
GitOps tool that holds a file of the same object, a webhook) would have both sides write dozens of times a second, for
ever. So a child that had to be put right more than `MOST_IN_WINDOW` times in a row waits from then on, longer each
time, until it is left in peace for a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

WINDOW_SECONDS = 60.0
"""In which repairs are counted, and how long a child must be left in peace for its fight to be over."""

MOST_IN_WINDOW = 100
"""More than tests or a person's script need; a fight at full speed reaches it within seconds."""

FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 30.0
"""Shorter than the window, so that a fight does not count as over while its next repair is waited for."""

K = TypeVar("K", bound=Hashable)


@dataclass
class _Record:
    """When a child was put right, and how long it waits the next time; 0 while there is no fight."""

    times: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_IN_WINDOW + 1))
    delay: float = 0.0


class Fights(Generic[K]):
    """Counts how often each child had to be put right.

    Args:
        clock: A clock that never goes back, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._records: dict[K, _Record] = {}

    def wait_seconds(self, child: K) -> float:
        """Return how long to leave a child as others want it; 0 as a rule."""
        record, now = self._records.get(child), self._clock()
        if record is None:
            return 0.0
        if now - record.times[-1] > WINDOW_SECONDS:
            del self._records[child]
            return 0.0
        return max(0.0, record.times[-1] + record.delay - now)

    def put_right(self, child: K) -> bool:
        """Take note that a child was put right, and tell whether it has become a fight by that."""
        record, now = self._records.setdefault(child, _Record()), self._clock()
        record.times.append(now)
        if record.delay:
            record.delay = min(2 * record.delay, LONGEST_DELAY_SECONDS)
            return False
        if len(record.times) <= MOST_IN_WINDOW or now - record.times[0] > WINDOW_SECONDS:
            return False
        record.delay = FIRST_DELAY_SECONDS
        return True
