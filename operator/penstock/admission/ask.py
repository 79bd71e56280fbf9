"""What goes into the gate and what comes out of it: an ask, a place in the queue, and what became of it.

place     | event                     | next      | what the caller sees
----------|---------------------------|-----------|-------------------------------------
waiting   | its turn                  | granted   | `Granted` from `Gate.advance`
waiting   | waited too long           | dropped   | nothing yet
waiting   | pushed out                | dropped   | nothing yet
waiting   | leave                     | left      |
dropped   | `Gate.advance`            | told      | `Dropped`
dropped   | leave                     | left      | nothing: the client is gone
granted, told, left | leave           |           | `PermitError`
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock.admission.permit import PermitError

if TYPE_CHECKING:
    from penstock.admission.permit import Permit
    from penstock.admission.shed import Shed


class Ask(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request that wants to go to the engine.

    Attributes:
        band: Name of its priority class; one that does not exist counts as `normal`.
        tenant: Whose request it is.
        weight: Share of the tenant among those that wait in the same band, above 0.
        requests: How many requests it is for the engine: one per choice, at least 1.
        prefill_tokens: Estimated prompt tokens.
        cost: What it costs its tenant: 1 per prompt token and 2 per output token, as estimated.
        budget_seconds: The longest it may wait.
        retry: Whether the client says that it asks again; only counted here.
    """

    band: str
    tenant: str
    weight: float = 1.0
    requests: int = 1
    prefill_tokens: int = 0
    cost: float = 1.0
    budget_seconds: float
    retry: bool = False

    def __post_init__(self) -> None:
        if not (0 < self.weight < inf and self.requests >= 1 and self.prefill_tokens >= 0 and 0 <= self.cost < inf):
            raise ValueError(
                f"weight must be above 0, requests at least 1, prefill_tokens and cost not below 0, all finite: {self}"
            )


class Place(Enum):
    """Where a waiting request is; see the table of this module."""

    WAITING = auto()
    GRANTED = auto()
    DROPPED = auto()
    TOLD = auto()
    LEFT = auto()


class Queuer(Protocol):
    """Who keeps the queue."""

    def leave(self, waiting: Waiting, now: float) -> None:
        """Take a request out of the queue."""


class Waiting:
    """A request that waits for its turn; compared and hashed by identity.

    Attributes:
        ask: What was asked.
        band: Index of its priority band in the bands in force.
        since: When.
        deadline: When it will have waited as long as it may.
        place: Where it is now.
        permit: The permit it runs with although it should wait, when decisions are not enforced.
        paced: Whether R has held it while there was room for it.
    """

    __slots__ = ("_queuer", "ask", "band", "deadline", "paced", "permit", "place", "since")

    def __init__(self, queuer: Queuer, ask: Ask, *, band: int, since: float) -> None:
        self._queuer = queuer
        self.ask = ask
        self.band = band
        self.since = since
        self.deadline = since + ask.budget_seconds
        self.place = Place.WAITING
        self.permit: Permit | None = None
        self.paced = False

    def leave(self, now: float) -> None:
        """Give the place up: the client went away.

        Raises:
            PermitError: its turn has come, it was dropped and the caller knows, or it left before.
        """
        if self.place is Place.WAITING:
            self._queuer.leave(self, now)
        elif self.place is not Place.DROPPED:
            raise PermitError(f"a place in the queue was left that is {self.place.name.lower()} already")
        self.place = Place.LEFT


@dataclass(frozen=True, slots=True)
class Granted:
    """A request's turn has come.

    Attributes:
        waiting: Which request.
        permit: To be returned exactly once.
        waited_seconds: How long it waited.
    """

    waiting: Waiting
    permit: Permit
    waited_seconds: float


@dataclass(frozen=True, slots=True)
class Dropped:
    """A request that waited is refused.

    Attributes:
        waiting: Which request.
        shed: Why.
        waited_seconds: How long it waited.
    """

    waiting: Waiting
    shed: Shed
    waited_seconds: float
