"""What the gate counts, so that a permit that was lost or returned twice would be seen.

All numbers are requests of the engine: an ask for several choices counts once per choice. Two equations always hold:

    admitted = finished + cancelled + in flight
    asked    = admitted + refused + left + waiting          (without shadow)
"""

from __future__ import annotations

from collections import Counter

from penstock.admission.permit import Outcome
from penstock.admission.shed import Shed


class Books:
    """Counts requests of one replica.

    Attributes:
        in_flight: Requests whose permit is out.
        asked: Requests that ever asked.
        admitted: Those that got a permit.
        retries: Those of the admitted that were said to be repetitions.
        finished: Permits returned by `finish`, by outcome.
        cancelled: Permits returned by `cancel`.
        left: Requests that gave up waiting.
        paced: Requests that R has held while there was room for them.
        shed: Requests that were refused, by class name and why. In shadow they are among the admitted too.
    """

    __slots__ = ("admitted", "asked", "cancelled", "finished", "in_flight", "left", "paced", "retries", "shed")

    def __init__(self) -> None:
        self.in_flight = 0
        self.asked = 0
        self.admitted = 0
        self.retries = 0
        self.finished: dict[Outcome, int] = dict.fromkeys(Outcome, 0)
        self.cancelled = 0
        self.left = 0
        self.paced = 0
        self.shed: Counter[tuple[str, Shed]] = Counter()

    @property
    def drift(self) -> int:
        """How far `admitted` is from `finished + cancelled + in_flight`; 0 unless there is a defect."""
        return self.admitted - sum(self.finished.values()) - self.cancelled - self.in_flight
