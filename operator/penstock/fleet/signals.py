"""What is known of a replica from outside, and who finds it out.

Each value is known with its age, or not at all. What is absent is unknown: nothing here ever turns into 0, since an
engine that does not answer is not an idle one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from math import inf
from typing import NamedTuple, Protocol

from penstock.api.engine import EngineType


class HeldBy(StrEnum):
    """What makes requests wait in a replica's own queue."""

    LIMIT = "limit"
    """The engine is full, as far as the limit of requests in flight says."""

    RATE = "rate"
    """The admission rate R lets them go later."""

    NONE = "none"
    """None waits."""


class Signal(NamedTuple):
    """One value.

    Attributes:
        value: The value, finite.
        age_seconds: How old it is.
    """

    value: float
    age_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSignals:
    """What is known of one replica; None is unknown.

    Attributes:
        waiting: Requests that wait inside the engine.
        running: Requests that the engine works on.
        kv_cache_percent: Used part of the engine's KV cache.
        queue_wait_ratio: How long a request would wait that came now, as a part of what its class allows.
        admitted_per_second: Requests for the engine that were let in.
        first_token_milliseconds: How long streams took from their admission to the first byte of the answer.
        limit: Requests that may be in flight.
        held_by: What makes requests wait; of the age of `queue_wait_ratio`.
        pushed_rate: R as pushed last and still in force, of this replica.
        boot_id: The limiter's.
    """

    waiting: Signal | None = None
    running: Signal | None = None
    kv_cache_percent: Signal | None = None
    queue_wait_ratio: Signal | None = None
    admitted_per_second: Signal | None = None
    first_token_milliseconds: Signal | None = None
    limit: Signal | None = None
    pushed_rate: float | None = None
    held_by: HeldBy | None = None
    boot_id: str | None = None

    def ages(self) -> dict[str, float]:
        """Return the age of each signal that is known."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value.age_seconds for name, value in values.items() if isinstance(value, Signal)}

    def or_fresher(self, other: ReplicaSignals) -> ReplicaSignals:
        """Return these, with what others know better: what is unknown here, or older."""
        values = {field.name: (getattr(self, field.name), getattr(other, field.name)) for field in fields(self)}
        return replace(self, **{name: theirs for name, (own, theirs) in values.items() if _is_better(theirs, own)})

    @property
    def of_engine(self) -> bool:
        """Whether anything is known of the engine itself."""
        return self.of_engine_within(inf)

    def of_engine_within(self, seconds: float) -> bool:
        """Tell whether anything of that age at most is known of the engine itself."""
        known = (self.waiting, self.running, self.kv_cache_percent)
        return any(one is not None and one.age_seconds <= seconds for one in known)


def _is_better(theirs: object, own: object) -> bool:
    if isinstance(theirs, Signal) and isinstance(own, Signal):
        return theirs.age_seconds < own.age_seconds
    return own is None


NOTHING = ReplicaSignals()


@dataclass(frozen=True, slots=True)
class Replica:
    """A pod of a backend.

    Attributes:
        name: The pod's name.
        uid: Its metadata.uid.
        address: Its IP address; empty while it has none.
        ready: Whether it gets requests.
    """

    name: str
    uid: str
    address: str
    ready: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Whose signals are asked for.

    Attributes:
        namespace: The backend's.
        engine: Its engine.
        replicas: Its replicas that have an address.
    """

    namespace: str
    engine: EngineType
    replicas: Sequence[Replica]


class Away(Exception):  # noqa: N818 - says what happened
    """A source as a whole does not answer; the text says how, for people."""


class SignalSource(Protocol):
    """Finds signals out."""

    async def read(self, subject: Subject) -> Mapping[str, ReplicaSignals]:
        """Return by pod name what is known; a replica of which nothing is known may be left out.

        It answers within seconds whatever happens.

        Raises:
            Away: The source does not answer.
        """
