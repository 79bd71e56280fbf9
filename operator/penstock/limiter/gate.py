"""The gate: how many requests the engine works on, counted exactly.

Every generation request needs a permit, and every permit comes back exactly once: `finish` when the engine ended the
request, `cancel` when the client left or the limiter cut it. `admitted = finished + cancelled + in_flight` therefore
always holds; the counters are exported so that a drift would be seen. No limit is in force here yet: `try_acquire` is
the one place where a request can be refused for load.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from penstock.limiter.refusal import Refused


class Outcome(StrEnum):
    """What a finished request says about the engine's capacity."""

    SUCCESS = "success"
    """Served: its latency is a sample."""

    IGNORE = "ignore"
    """Ended for a reason that has nothing to do with load."""

    DROPPED = "dropped"
    """The engine shed it or failed under it: a sign of overload."""

    __hash__ = str.__hash__  # every request counts its outcome; the hash of Enum is a Python function


class PermitError(RuntimeError):
    """A permit was returned twice: a defect of the limiter, never of a client."""


class Permit:
    """The right of one request to be at the engine."""

    __slots__ = ("_gate",)

    def __init__(self, gate: Gate) -> None:
        self._gate: Gate | None = gate

    def finish(self, outcome: Outcome) -> None:
        """Return the permit of a request that the engine ended.

        Raises:
            PermitError: it was returned before.
        """
        self._take().count_finished(outcome)

    def cancel(self) -> None:
        """Return the permit of a request that ended before the engine ended it.

        Raises:
            PermitError: it was returned before.
        """
        self._take().count_cancelled()

    def _take(self) -> Gate:
        gate, self._gate = self._gate, None
        if gate is None:
            raise PermitError("a permit was returned twice")
        return gate


class Gate:
    """Counts the requests of one replica.

    Attributes:
        in_flight: Permits out now.
        admitted: Permits ever given.
        finished: Permits returned by `finish`, by outcome.
        cancelled: Permits returned by `cancel`.
        on_idle: Called whenever `in_flight` falls to 0.
    """

    def __init__(self) -> None:
        self.in_flight = 0
        self.admitted = 0
        self.finished: dict[Outcome, int] = dict.fromkeys(Outcome, 0)
        self.cancelled = 0
        self.on_idle: Callable[[], None] | None = None

    @property
    def drift(self) -> int:
        """How far the counters are from `admitted = finished + cancelled + in_flight`; 0 unless there is a defect."""
        return self.admitted - sum(self.finished.values()) - self.cancelled - self.in_flight

    def try_acquire(self) -> Permit | Refused:
        """Return a permit, or why there is none."""
        self.admitted += 1
        self.in_flight += 1
        return Permit(self)

    def count_finished(self, outcome: Outcome) -> None:
        """Take back one permit; called by `Permit` only."""
        self.finished[outcome] += 1
        self._returned()

    def count_cancelled(self) -> None:
        """Take back one permit; called by `Permit` only."""
        self.cancelled += 1
        self._returned()

    def _returned(self) -> None:
        self.in_flight -= 1
        if self.in_flight == 0 and self.on_idle is not None:
            self.on_idle()


class BodyBudget:
    """Bytes of request bodies that may be held in memory at the same time.

    Attributes:
        limit_bytes: The most; a body that would pass it is refused as overload.
        held_bytes: What is held now.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    def take(self, size: int) -> bool:
        """Reserve `size` bytes; False when there is no room."""
        if self.held_bytes + size > self.limit_bytes:
            return False
        self.held_bytes += size
        return True

    def give(self, size: int) -> None:
        """Return what was taken."""
        self.held_bytes -= size
