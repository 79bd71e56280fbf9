"""Everything that waits: one fair queue per priority band, bounded together.

Bands are served strictly, the highest first. What the bound means when it is reached: a higher band takes the place of
the newest entry of the lowest sheddable band; a tenant that has fewer places than its share takes the place of the
newest entry of the tenant of its band that has the most. Without the second rule the places of a full queue would go
to whoever asks most often, and fair turns would be of no use to those who never get a place.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.admission.ask import Ask, Place, Waiting
from penstock.admission.bands import Bands
from penstock.admission.fairqueue import FairQueue
from penstock.admission.shed import Shed


class Line:
    """The queues of all bands.

    Attributes:
        queues: By band, the highest first.
        depth: How many entries wait in all of them.
    """

    __slots__ = ("_bands", "depth", "queues")

    def __init__(self, bands: Bands) -> None:
        self._bands = bands
        self.queues = [FairQueue() for _ in bands.names]
        self.depth = 0

    @property
    def requests(self) -> int:
        """How many requests for the engine wait."""
        return sum(queue.requests for queue in self.queues)

    @property
    def next_deadline(self) -> float | None:
        """When the next entry has waited as long as it may."""
        deadlines = (queue.next_deadline for queue in self.queues)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def push(self, waiting: Waiting) -> None:
        """Add an entry to the queue of its band."""
        self.queues[waiting.band].push(waiting)
        self.depth += 1

    def take(self, waiting: Waiting) -> None:
        """Take out the first entry of a band because it goes now: its tenant pays."""
        self.queues[waiting.band].take(waiting)
        self.depth -= 1
        waiting.place = Place.GRANTED

    def remove(self, waiting: Waiting, place: Place) -> None:
        """Take an entry out wherever it stands."""
        self.queues[waiting.band].remove(waiting)
        self.depth -= 1
        waiting.place = place

    def expire(self, now: float) -> list[Waiting]:
        """Take out and return what has waited as long as it may."""
        expired = [entry for queue in self.queues for entry in queue.expire(now)]
        for entry in expired:
            entry.place = Place.DROPPED
        self.depth -= len(expired)
        return expired

    def ahead(self, ask: Ask, band: int) -> tuple[int, int]:
        """Return about how many requests and prompt tokens go before a new entry."""
        requests, tokens = self.queues[band].ahead(ask.tenant, ask.weight, ask.cost)
        for higher in self.queues[:band]:
            requests += higher.requests
            tokens += higher.prefill_tokens
        return requests, tokens

    def yields(self, ask: Ask, band: int) -> tuple[Waiting, Shed] | None:
        """Return the entry that gives its place to a new one when all are taken, and what it is told; None for none."""
        for lower in range(len(self.queues) - 1, band, -1):
            if self._bands.classes[lower].sheddable and self.queues[lower]:
                return self.queues[lower].newest, Shed.LOW_PRIORITY
        crowded = self.queues[band].most_crowded(ask.tenant, ask.weight)
        return None if crowded is None else (crowded, Shed.QUEUE_FULL)

    def configure(self, bands: Bands, index: Sequence[int]) -> None:
        """Put new bands in force; every entry is kept.

        Args:
            bands: The new bands.
            index: By old band, the new one. Several may become one: what belonged to a class that is gone waits behind
                what was there.
        """
        old = list(zip(self._bands.names, self.queues, index, strict=True))
        self._bands = bands
        self.queues = [FairQueue() for _ in bands.names]
        moved = []
        for name, queue, band in old:
            if name == bands.names[band]:
                self.queues[band] = queue
            else:
                moved.append((queue, band))
            for entry in queue.entries:
                entry.band = band
        for queue, band in moved:
            for entry in queue.entries:
                self.queues[band].push(entry)
