"""The decisions of an election through one Lease object; `kube.election` reads, writes and sleeps.

Theory of operation. The leader renews the Lease every few seconds. Whoever sees it unchanged for the whole duration
that the holder has promised may take it. Two times keep two leaders apart, both on the monotonic clock of one machine,
never by comparing clocks of two:

- A candidate counts the duration from the moment at which it saw the record change, which is after the leader wrote it.
- The leader counts its deadline from the moment before it sent the last renewal that succeeded, which is before the
  record changed. The deadline is shorter than the duration.

So the leader's time is over before any candidate's wait is, whatever the clocks say and however long an answer took.
`Fence` is that deadline, and every write of the operator asks it right before it is sent (`kube.client`).

    standby ──take──> leading ──release──> gone
       ^ │               │
       └─┘ wait          └── deadline passed, or another holder seen ──> lost: the process ends

The Lease is replaced with the resourceVersion that was read, so of two candidates that take it together one gets a
conflict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from penstock.kube.errors import NotLeading


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The election's times, in seconds; each is shorter than the one before.

    Attributes:
        duration: How long a candidate waits without seeing a renewal before it takes the Lease.
        deadline: How long a leader goes on without a successful renewal.
        retry: How often the leader renews and candidates look.
    """

    duration: float = 15.0
    deadline: float = 10.0
    retry: float = 2.0


@dataclass(frozen=True, kw_only=True)
class Record:
    """What the Lease says.

    Attributes:
        holder: Identity of the leader; empty when it was released.
        duration: Seconds that the holder has promised to count with.
        transitions: How often the holder has changed.
        acquired: When the holder took it, as text.
        version: Its resourceVersion, which changes with every renewal.
    """

    holder: str = ""
    duration: float = 0.0
    transitions: int = 0
    acquired: str = ""
    version: str = ""


class Fence:
    """Until when this process may write.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until = float("-inf")

    @property
    def open(self) -> bool:
        """Whether it may write now."""
        return self._clock() < self._until

    @property
    def left_seconds(self) -> float:
        """How long it may still write without another renewal; not above 0 when it may not."""
        return self._until - self._clock()

    def extend(self, until: float) -> None:
        """Let writes pass until then; what has passed already, because the answer was late, opens nothing."""
        if until > self._clock():
            self._until = until

    def shut(self) -> None:
        """Let no write pass any more."""
        self._until = float("-inf")

    def check(self) -> None:
        """Do nothing while it may write.

        Raises:
            NotLeading: It may not.
        """
        if not self.open:
            raise NotLeading("this replica does not lead, so it writes nothing")


class Step(Enum):
    """What a candidate does next."""

    WAIT = auto()
    TAKE = auto()


class Candidacy:
    """The decisions of one candidate; times come in as arguments.

    Args:
        identity: Unlike that of any other process.
        timing: The election's times.
    """

    def __init__(self, identity: str, timing: Timing) -> None:
        self.identity = identity
        self._timing = timing
        self._seen: Record | None = None
        self._changed_at = 0.0

    @property
    def transitions(self) -> int:
        """How often the Lease had changed hands when it was seen last; 0 before, and again when it was deleted."""
        return self._seen.transitions if self._seen else 0

    def observe(self, record: Record | None, *, now: float) -> Step:
        """Take note of what the Lease says and return what to do about it."""
        if self._seen != record:
            self._seen, self._changed_at = record, now
        # Its own name can be there before it knows: the answer to the write that took the Lease was lost.
        if record is None or record.holder in ("", self.identity):
            return Step.TAKE
        return Step.TAKE if self.wait_seconds(now=now) <= 0 else Step.WAIT

    def wait_seconds(self, *, now: float) -> float:
        """Return how long the holder's time still lasts, as far as this candidate can know."""
        if self._seen is None or not self._seen.holder:
            return 0.0
        return self._changed_at + max(self._seen.duration, self._timing.duration) - now

    def claim(self, *, stamp: str) -> Record:
        """Return the record that takes the Lease, or renews it, over the one seen last."""
        seen = self._seen or Record()
        mine = seen.holder == self.identity
        return Record(
            holder=self.identity,
            duration=self._timing.duration,
            transitions=seen.transitions + (0 if mine or self._seen is None else 1),
            acquired=seen.acquired if mine else stamp,
            version=seen.version,
        )

    def wrote(self, record: Record) -> None:
        """Take note of the answer to an own write."""
        self._seen = record

    def release(self) -> Record | None:
        """Return the record that gives the Lease back, or None when it is not ours."""
        if self._seen is None or self._seen.holder != self.identity:
            return None
        seen = self._seen
        return Record(
            holder="", duration=1.0, transitions=seen.transitions, acquired=seen.acquired, version=seen.version
        )
