"""What a gate holds, and what can be seen of it from outside; what it decides is in `admission.gate`."""

from __future__ import annotations

from enum import StrEnum

from penstock.admission.ask import Dropped
from penstock.admission.bands import Bands
from penstock.admission.books import Books
from penstock.admission.holdings import Holdings
from penstock.admission.limit import Limit
from penstock.admission.line import Line
from penstock.admission.pace import Pace
from penstock.admission.waits import Waits


class HeldBy(StrEnum):
    """What makes requests wait."""

    LIMIT = "limit"
    """The limits of what may be in flight."""

    RATE = "rate"
    """R."""

    NONE = "none"
    """None waits."""


class GateState:
    """The state of a gate.

    Attributes:
        limit: L, the requests that may be in flight.
        prefill_limit: T, the prompt tokens that may be in work; None for no bound.
        queue_limit: Q, the entries that may wait; None for 10 times L.
        shadow: Whether decisions are only counted.
        bands: The priority bands in force.
        waits: The rates that predictions rest on.
        pace: R, the requests that may go per second.
        books: What was counted.
    """

    __slots__ = (
        "_dropped",
        "_holdings",
        "_line",
        "_paced_until",
        "bands",
        "books",
        "limit",
        "pace",
        "prefill_limit",
        "queue_limit",
        "shadow",
        "waits",
    )

    def __init__(
        self,
        bands: Bands,
        limit: Limit,
        *,
        prefill_limit: int | None = None,
        queue_limit: int | None = None,
        shadow: bool = False,
    ) -> None:
        self.limit = limit
        self.prefill_limit = prefill_limit
        self.queue_limit = queue_limit
        self.shadow = shadow
        self.bands = bands
        self.waits = Waits()
        self.pace = Pace()
        self.books = Books()
        self._holdings = Holdings(len(bands.names))
        self._line = Line(bands)
        self._dropped: list[Dropped] = []
        self._paced_until: float | None = None
        """When R lets the first go that it holds; None while it is not R that holds the first."""

    @property
    def in_flight(self) -> int:
        """The requests in flight."""
        return self.books.in_flight

    @property
    def depth(self) -> int:
        """How many entries wait."""
        return self._line.depth

    @property
    def waiting_requests(self) -> int:
        """How many requests for the engine wait."""
        return self._line.requests

    @property
    def prefill_backlog(self) -> int:
        """Prompt tokens in work, of permits that count against the limits."""
        return self._holdings.prefill_backlog

    @property
    def rate_per_second(self) -> float | None:
        """R; None for no bound."""
        return self.pace.per_second

    @property
    def depth_by_band(self) -> dict[str, int]:
        """How many entries wait, by class name."""
        return {name: len(queue) for name, queue in zip(self.bands.names, self._line.queues, strict=True)}

    @property
    def held_by_band(self) -> dict[str, int]:
        """The requests in flight that count against the limits, by class name: all of them, when enforcing."""
        return dict(zip(self.bands.names, self._holdings.by_band, strict=True))

    @property
    def in_flight_by_band(self) -> dict[str, int]:
        """The requests in flight by class name."""
        names = self.bands.names
        return dict(zip(names, self._holdings.requests(len(names)), strict=True))

    @property
    def held_by(self) -> HeldBy:
        """What makes requests wait, as of the last `advance`."""
        if not self._line.depth:
            return HeldBy.NONE
        return HeldBy.LIMIT if self._paced_until is None else HeldBy.RATE

    def wait_ratio(self, now: float) -> float:
        """Return the longest wait of those that wait now, as a part of what each may wait; 0 when none does."""
        waiting = (entry for queue in self._line.queues for entry in queue.entries)
        return max(((now - one.since) / one.ask.budget_seconds for one in waiting), default=0.0)
