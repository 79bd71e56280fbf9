"""What a gate holds, and what can be seen of it from outside; what it decides is in `admission.gate`."""

from __future__ import annotations

from enum import StrEnum
from math import inf

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
        longest_wait_seconds: The longest any request may wait, whatever its class says.
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
        "_rate_held_at",
        "bands",
        "books",
        "limit",
        "longest_wait_seconds",
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
        self.longest_wait_seconds = inf
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
        self._rate_held_at = -inf

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
    def held_by(self) -> HeldBy:
        """What makes requests wait, as of the last `advance`."""
        if not self._line.depth:
            return HeldBy.NONE
        return HeldBy.LIMIT if self._paced_until is None else HeldBy.RATE

    def held_by_within(self, seconds: float, now: float) -> HeldBy:
        """Return what makes requests wait; R also when it has held one within so many seconds.

        What R has held back stands in the queue for a while, and would look like the engine's own when the limit holds
        it next.
        """
        if self._paced_until is not None or now - self._rate_held_at < seconds:
            return HeldBy.RATE
        return self.held_by

    def wait_ratio(self, now: float) -> float:
        """Return how long a request would wait that came now, as a part of what its class may wait.

        The largest of all classes of which some wait, for one behind all of them; above 1 it would be refused. While
        nothing can be predicted it is how long the first has waited. 0 when none waits. R has no part in it.
        """
        worst = 0.0
        requests, tokens = 0, self.prefill_backlog
        for band, queue in enumerate(self._line.queues):
            requests += queue.requests
            tokens += queue.prefill_tokens
            budget = min(self.bands.classes[band].max_wait_seconds, self.longest_wait_seconds)
            if not queue or budget <= 0:
                continue
            room = self.bands.room(band, self._holdings.by_band, self.limit.value).requests
            predicted = self.waits.predicted_seconds(max(0, requests + 1 - room), tokens, now) or 0.0
            waited = now - min(entry.since for entry in queue.entries)
            worst = max(worst, max(predicted, waited) / budget)
        return worst
