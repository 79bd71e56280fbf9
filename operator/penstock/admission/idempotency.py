"""Runs that are known by a key: which request begins one, which joins it, and which must not.

A client that sends a request again, because it waited too long or lost its connection, should not make the engine work
twice. A key says that two requests are one. The table remembers runs by their key, and what they did:

    state     | same key, same body | other body | too much | served   | failed    | time passes
    ----------|---------------------|------------|----------|----------|-----------|-----------------
    unknown   | begin -> open       |            |          |          |           |
    open      | join                | conflict   | -> long  | -> kept  | -> unknown|
    long      | busy                | conflict   |          | -> unknown| -> unknown|
    kept      | replay              | conflict   |          |          |           | -> unknown

*Long* is a run of which too much has been said to be told again from the beginning: those that follow it go on, nobody
can join it, and after its end a request with its key is a new one. Failures are not kept, so that trying again can
succeed.

Memory is bounded in three ways: bytes of one answer, bytes of all answers, and the number of runs. When there are too
many bytes, the answer that was kept first is forgotten; when none is left, the run that grew becomes long. When there
are too many runs, the same happens; when all are open, the next one is not remembered: it is served, and cannot be
joined. A key is only kept as a digest.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Generic, TypeVar

KEEP_SECONDS = 300.0
"""How long an answer can be had again. SDKs come back within seconds, people and job runners within minutes."""

RECLAIM_SECONDS = 5.0
"""How long a run that everybody has left goes on for the owner of its key: the first two retries of the SDKs begin
after 0.4 to 1 s each."""

ANSWER_LIMIT_BYTES = 256 * 1024
TOTAL_LIMIT_BYTES = 16 * 1024 * 1024
RUNS_LIMIT = 4096
PIECE_OVERHEAD_BYTES = 64
"""What a piece of an answer costs beside its bytes."""

KEY_LIMIT = 255
_KEY = re.compile(rb"[\x21-\x7e](?:[\x20-\x7e]{0,%d}[\x21-\x7e])?" % (KEY_LIMIT - 2))
_MADE_BY_SDK = re.compile(rb"stainless-[a-z]+-retry-.+")
_DIGEST_BYTES = 16

Holder = TypeVar("Holder")


class Coalesced(StrEnum):
    """What was done to spare the engine a run, as a metric label."""

    JOINED = "joined"
    """A request with the key of a run under way follows that run."""
    RECLAIMED = "reclaimed"
    """The same, of a run that everybody else had left."""
    REPLAYED = "replayed"
    """A request with the key of an answered one gets that answer."""
    CONFLICT = "conflict"
    """A request with a known key has another body: refused."""
    BUSY = "busy"
    """A request with the key of a run that is too long to be told again: refused."""
    RETRY_JOINED = "retry_joined"
    """A retry without a key follows the request that it repeats."""
    ORPHAN_CANCELLED = "orphan_cancelled"
    """A retry without a key ended the request that it repeats, whose client is gone."""
    ABANDONED = "abandoned"
    """Nobody came back to a run with a key: it was ended."""
    FELL_BEHIND = "fell_behind"
    """One of several clients read so slowly that it was cut off from their run."""

    __hash__ = str.__hash__


class Standing(Enum):
    """What a request with a key is to the table."""

    NEW = auto()
    JOINS = auto()
    REPLAYS = auto()
    CONFLICTS = auto()
    BUSY = auto()


class State(Enum):
    """Where a remembered run is; see the table of this module."""

    OPEN = auto()
    LONG = auto()
    KEPT = auto()
    FORGOTTEN = auto()


@dataclass(eq=False, slots=True)
class Entry(Generic[Holder]):
    """A remembered run.

    Attributes:
        scope: Whose key it is, as a digest.
        mark: Digest of the body.
        holder: Whoever has the answer.
        state: Where it is.
        size: Bytes of its answer that are remembered.
        until: When it is forgotten; only while it is kept.
    """

    scope: bytes
    mark: bytes
    holder: Holder
    state: State = field(default=State.OPEN, init=False)
    size: int = field(default=0, init=False)
    until: float = field(default=0.0, init=False)


class Runs(Generic[Holder]):
    """The table.

    Attributes:
        total_bytes: Of all remembered answers.
    """

    def __init__(self) -> None:
        self.total_bytes = 0
        self._entries: dict[bytes, Entry[Holder]] = {}
        self._kept: OrderedDict[bytes, Entry[Holder]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def knows(self, scope: bytes, now: float) -> bool:
        """Say whether a request with this key will not be a new one."""
        self.expire(now)
        return scope in self._entries

    def find(self, scope: bytes, mark: bytes, now: float) -> tuple[Standing, Entry[Holder] | None]:
        """Say what a request is, and of which run.

        Args:
            scope: Digest of tenant, path and key.
            mark: Digest of its body.
            now: The time.
        """
        self.expire(now)
        entry = self._entries.get(scope)
        if entry is None:
            return Standing.NEW, None
        if entry.mark != mark:
            return Standing.CONFLICTS, entry
        return _STANDINGS[entry.state], entry

    def begin(self, scope: bytes, mark: bytes, holder: Holder) -> Entry[Holder]:
        """Remember a new run, if there is room; else what is returned is forgotten already."""
        entry = Entry(scope, mark, holder)
        if len(self._entries) >= RUNS_LIMIT and not self._forget_oldest():
            entry.state = State.FORGOTTEN
        else:
            self._entries[scope] = entry
        return entry

    def grew(self, entry: Entry[Holder], size: int) -> bool:
        """Note that so many bytes were said; return whether the answer can still be told from its beginning."""
        if entry.state is not State.OPEN:
            return False
        cost = size + PIECE_OVERHEAD_BYTES
        entry.size += cost
        self.total_bytes += cost
        while self.total_bytes > TOTAL_LIMIT_BYTES and self._forget_oldest():
            pass
        if entry.size > ANSWER_LIMIT_BYTES or self.total_bytes > TOTAL_LIMIT_BYTES:
            self._release(entry, State.LONG)
            return False
        return True

    def served(self, entry: Entry[Holder], now: float) -> None:
        """Keep a whole answer; one that was too long is forgotten."""
        if entry.state is not State.OPEN:
            self.forget(entry)
            return
        entry.state = State.KEPT
        entry.until = now + KEEP_SECONDS
        self._kept[entry.scope] = entry

    def forget(self, entry: Entry[Holder]) -> None:
        """Forget a run; harmless when repeated."""
        if entry.state is State.FORGOTTEN:
            return
        self._kept.pop(entry.scope, None)
        del self._entries[entry.scope]
        self._release(entry, State.FORGOTTEN)

    def expire(self, now: float) -> None:
        """Forget the answers whose time is over."""
        while self._kept:
            oldest = next(iter(self._kept.values()))
            if oldest.until > now:
                return
            self.forget(oldest)

    def next_expiry(self) -> float | None:
        """Return when the next answer is to be forgotten; None when none is kept."""
        return next((entry.until for entry in self._kept.values()), None)

    def _forget_oldest(self) -> bool:
        if not self._kept:
            return False
        self.forget(next(iter(self._kept.values())))
        return True

    def _release(self, entry: Entry[Holder], state: State) -> None:
        entry.state = state
        self.total_bytes -= entry.size
        entry.size = 0


_STANDINGS = {State.OPEN: Standing.JOINS, State.LONG: Standing.BUSY, State.KEPT: Standing.REPLAYS}


def scope_of(tenant: str, path: str, key: bytes) -> bytes:
    """Return a digest of whose key it is and what it is for, so that nobody can name the run of another tenant."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in (tenant.encode("utf-8", "surrogateescape"), path.encode("ascii"), key):
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.digest()


def is_key(value: bytes) -> bool:
    """Say whether a header's value can be a key: 1 to 255 visible characters, quotes or not."""
    return _KEY.fullmatch(value) is not None


def made_by_sdk(key: bytes) -> bool:
    """Say whether an SDK made a key up for one call: then nobody comes back with it after that call has ended."""
    return _MADE_BY_SDK.fullmatch(key) is not None
