"""Corrections of what a shared store has counted, on their way to it.

A request is charged an estimate, and its end says how much was right; that is sent when there is time. Nothing waits
for it, so it must not be lost in silence either: what the store refused without doing it goes back to the front, and
what is lost, because too much has gathered or a connection broke, is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from penstock.admission.question import Settlement
from penstock.limiter.storeline import LineError

LIMIT = 10_000
NOT_DONE = frozenset({"lost_scripts", "read_only", "loading", "refused_password"})
"""Answers that say that nothing was changed."""


class Corrections:
    """See the module's docstring.

    Attributes:
        lost: How many never reached the store, or may not have.
    """

    def __init__(self) -> None:
        self.lost = 0
        self._waiting: deque[Settlement] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, correction: Settlement) -> None:
        """Send this, too; the oldest gives way when too many wait."""
        if len(self._waiting) >= LIMIT:
            self._waiting.popleft()
            self.lost += 1
        self._waiting.append(correction)

    def take(self, most: int) -> list[Settlement]:
        """Take the oldest, to send them."""
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def answered(self, sent: Sequence[Settlement], answers: Sequence[object]) -> LineError | None:
        """Take note of what became of some; return what is wrong, if anything is."""
        failed = None
        back = []
        for one, answer in zip(sent, answers, strict=True):
            if isinstance(answer, LineError):
                failed = answer
                if str(answer) in NOT_DONE:
                    back.append(one)
                else:
                    self.lost += 1
        self._waiting.extendleft(reversed(back))
        return failed

    def broken(self, sent: Sequence[Settlement]) -> None:
        """The connection broke while some were under way: nobody knows whether they were done."""
        self.lost += len(sent)

    def clear(self) -> None:
        """Forget all: they are about what another store has counted."""
        self.lost += len(self._waiting)
        self._waiting.clear()
