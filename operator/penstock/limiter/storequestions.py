"""Questions to the shared store that have no answer yet: which go next, and whether one has waited too long.

One timer watches the question that has waited the longest. A timer that is itself late says something about this
process and nothing about the store; then it waits once more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from penstock.limiter.asking import Asking

OWN_LAG_SECONDS = 0.005


class Questions:
    """See the module's docstring; true while some are not sent.

    Args:
        loop: Where the timer runs.
        budget_seconds: How long a question may wait.
        late: Told when one has waited longer.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, budget_seconds: float, late: Callable[[], None]) -> None:
        self._loop = loop
        self._budget_seconds = budget_seconds
        self._late = late
        self._asked: deque[Asking] = deque()
        """Not sent yet."""
        self._sent: list[Asking] = []
        self._timer: asyncio.TimerHandle | None = None
        self._forgiven = False

    def __bool__(self) -> bool:
        return bool(self._asked)

    def add(self, asking: Asking) -> None:
        """Take one more, and watch it."""
        self._asked.append(asking)
        if self._timer is None:
            self._timer = self._loop.call_at(asking.asked_at + self._budget_seconds, self._time_is_up)

    def send(self, most: int) -> list[Asking]:
        """Return those that go next, the oldest; they are watched until `answered` or `drop`."""
        self._sent = [self._asked.popleft() for _ in range(min(most, len(self._asked)))]
        return self._sent

    def answered(self) -> None:
        """Those that were sent have their answers."""
        self._sent = []

    def drop(self) -> list[Asking]:
        """Return all, and watch none of them any more."""
        dropped = [*self._sent, *self._asked]
        self._sent = []
        self._asked.clear()
        self.watch()
        return dropped

    def watch(self) -> None:
        """Watch the one that has waited the longest, if anybody waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        oldest = next((one for one in (*self._sent, *self._asked) if one.is_awaited), None)
        if oldest is not None:
            self._timer = self._loop.call_at(oldest.asked_at + self._budget_seconds, self._time_is_up)

    def _time_is_up(self) -> None:
        now = self._loop.time()
        due = self._timer.when() if self._timer is not None else now
        self._timer = None
        if not self._forgiven and now - due > OWN_LAG_SECONDS:
            self._forgiven = True
            self._timer = self._loop.call_later(OWN_LAG_SECONDS, self._time_is_up)
            return
        self._forgiven = False
        if any(one.is_awaited and one.asked_at + self._budget_seconds <= now for one in (*self._sent, *self._asked)):
            self._late()
        else:
            self.watch()
