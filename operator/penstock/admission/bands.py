"""Priority bands: how much of the limit each class of requests may use.

The bands are the priority classes of the policy, the highest first. With a limit of L requests:

- **Ceiling**: a band enters while the requests in flight are fewer than `ceilingPercent` of L, whoever they belong to.
  So the last part of L is only for higher bands, and a burst of them finds room at once.
- **Reserve** (bulkhead): `reservedPercent` of L is kept free for the class. Lower bands never use it. Higher bands may:
  priority overflows downwards, never upwards. Inside its own reserve a band is not held by its ceiling, and what it has
  there is not counted against the ceilings of higher bands: with a ceiling of 80 % above a reserve of 20 % both get
  what they were promised.
- **Idle**: when nothing is in flight, any one request may enter. One that is larger than its band or even L would
  otherwise never run.

Rounding, in whole requests: ceilings are rounded up, so each is at least 1 and an engine with few slots uses all of
them (90 % of 4 are 4). Reserves are rounded up too, so that a class with a reserve has one, but together they leave at
least one request open to all; what that costs is taken from the lowest. With L = 1 there are no reserves, and every
class can run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from penstock.api.admission import NORMAL, PriorityClass


class Verdict(Enum):
    """Whether a request may enter now.

    Attributes:
        admits: Whether it may.
    """

    ENTER = "enter", True
    """Yes."""

    BULKHEAD = "bulkhead", True
    """Yes, into what is reserved for its own band."""

    CEILING = "ceiling", False
    """No: its band is at its ceiling. Others may enter what is reserved for them."""

    PACED = "paced", False
    """No: there is room, and R lets the next one go later. Nothing below it may enter first."""

    FULL = "full", False
    """No: there is no room. Nothing below it may enter first."""

    def __init__(self, _word: str, admits: bool) -> None:
        self.admits = admits


class Room(NamedTuple):
    """How many requests a band may still take; negative when there are already more than allowed.

    Attributes:
        free: What the limit has left, without what is kept for higher bands.
        ceiling: What is left up to the band's ceiling.
        reserve: What is left of its own reserve.
    """

    free: int
    ceiling: int
    reserve: int

    @property
    def requests(self) -> int:
        """How many may enter, 0 or more."""
        return max(0, min(self.free, max(self.ceiling, self.reserve)))


class Bands:
    """The priority bands of a policy, the highest first.

    Attributes:
        classes: The priority classes.
        names: Their names.
        normal: Index of the class that requests without one belong to.
    """

    __slots__ = ("_ceilings", "_indices", "_limit", "_reserves", "classes", "names", "normal")

    def __init__(self, classes: Iterable[PriorityClass]) -> None:
        """Take the classes of a policy.

        Raises:
            ValueError: none of them is `normal`.
        """
        self.classes = tuple(classes)
        self.names = tuple(one.name for one in self.classes)
        if NORMAL not in self.names:
            raise ValueError(f"one priority class must be named `{NORMAL}`, there are only {', '.join(self.names)}")
        self._indices = {name: index for index, name in enumerate(self.names)}
        self.normal = self._indices[NORMAL]
        self._limit = 0
        self._ceilings: Sequence[int] = ()
        self._reserves: Sequence[int] = ()

    def index(self, name: str) -> int:
        """Return the index of a class; of `normal` when there is none of that name."""
        return self._indices.get(name, self.normal)

    def room(self, band: int, in_flight_by_band: Sequence[int], limit: int) -> Room:
        """Return how many requests a band may still take."""
        return Room(*self._room(band, in_flight_by_band, limit))

    def _room(self, band: int, in_flight_by_band: Sequence[int], limit: int) -> tuple[int, int, int]:
        if limit != self._limit:
            self._limit = limit
            self._ceilings, self._reserves = parts(self.classes, limit)
        reserves = self._reserves
        used = kept = beside = 0
        for index, in_flight in enumerate(in_flight_by_band):
            used += in_flight
            reserve = reserves[index]
            if index < band and in_flight < reserve:
                kept += reserve - in_flight
            elif index > band:
                beside += min(reserve, in_flight)
        return limit - used - kept, self._ceilings[band] - (used - beside), reserves[band] - in_flight_by_band[band]

    def verdict(self, band: int, in_flight_by_band: Sequence[int], limit: int, requests: int = 1) -> Verdict:
        """Return whether one ask for so many requests may enter now, and what holds it if not."""
        if not any(in_flight_by_band):
            return Verdict.ENTER
        free, ceiling, reserve = self._room(band, in_flight_by_band, limit)
        if requests > free:
            return Verdict.FULL
        if requests <= reserve:
            return Verdict.BULKHEAD
        if requests <= ceiling:
            return Verdict.ENTER
        # One that is above its ceiling by itself waits for an idle engine: nothing may keep that busy.
        return Verdict.CEILING if requests <= self._ceilings[band] else Verdict.FULL


def parts(classes: Iterable[PriorityClass], limit: int) -> tuple[list[int], list[int]]:
    """Return for each class how many requests may be in flight for it to enter, and how many are kept for it."""
    ceilings, reserves, left = [], [], limit - 1
    for one in classes:
        ceilings.append(_part(one.ceiling_percent, limit))
        reserves.append(min(_part(one.reserved_percent, limit), left))
        left -= reserves[-1]
    return ceilings, reserves


def _part(percent: int, limit: int) -> int:
    """Return a share of the limit in whole requests, rounded up."""
    return -(-percent * limit // 100)
