"""A queue of keys to work on, for level-based reconciliation.

Theory of operation. A key is in at most one of these places, besides having at most one due time:

    idle ──add──> waiting ──get──> processing ──done──> idle
                                       │ add
                                       v
                              processing + dirty ──done──> waiting

- Adding a waiting key changes nothing, so a burst of events costs one reconcile.
- Adding a key that is being processed marks it dirty; it becomes waiting when it is done. Hence no key is ever
  processed twice at once, and no change is ever missed.
- Waiting keys are served in the order they arrived; a dirty key goes to the end, so one busy backend cannot starve
  the others.
- A due time (retry, re-queue, resync) is a delayed `add`. Each key has one: the earliest asked for wins, and serving
  the key clears it. Superseded entries stay in the heap and are dropped when they come up.

Time is the running event loop's, so tests run it in virtual time. All methods must be called on that loop.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class QueueClosed(Exception):  # noqa: N818 - the end of a stream, not an error
    """No more keys will come."""


class WorkQueue(Generic[K]):
    """See the module's theory of operation."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[K, float] = OrderedDict()  # key -> when it began to wait
        self._processing: set[K] = set()
        self._dirty: set[K] = set()
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ready = asyncio.Event()
        self._closed = False

    @property
    def depth(self) -> int:
        """Keys waiting to be served, dirty ones included."""
        return len(self._waiting) + len(self._dirty)

    @property
    def processing(self) -> int:
        """Keys being worked on."""
        return len(self._processing)

    def oldest_seconds(self) -> float:
        """Return how long the first waiting key has been waiting; 0 when none is."""
        for since in self._waiting.values():
            return self._now() - since
        return 0.0

    def add(self, key: K) -> None:
        """Ask for a key to be served as soon as possible."""
        if self._closed:
            return
        if key in self._processing:
            self._dirty.add(key)
        elif key not in self._waiting:
            self._waiting[key] = self._now()
            self._ready.set()

    def add_after(self, key: K, delay_seconds: float) -> None:
        """Ask for a key to be served after a delay, unless something else serves it earlier."""
        if self._closed:
            return
        if delay_seconds <= 0:
            self.add(key)
            return
        due = self._now() + delay_seconds
        if key not in self._due or due < self._due[key]:
            self._due[key] = due
            self._sequence += 1
            heapq.heappush(self._heap, (due, self._sequence, key))
            self._arm()

    def forget(self, key: K) -> None:
        """Drop a key's due time: it is gone. What waits is still served once, and finds nothing."""
        self._due.pop(key, None)

    async def get(self) -> K:
        """Wait for the next key and mark it as being processed; `done` must follow.

        Raises:
            QueueClosed: `close` was called.
        """
        while not self._closed:
            if self._waiting:
                key, _since = self._waiting.popitem(last=False)
                self._processing.add(key)
                self._due.pop(key, None)
                return key
            self._ready.clear()
            await self._ready.wait()
        raise QueueClosed

    def done(self, key: K) -> None:
        """End the processing of a key; it waits again if it was added meanwhile."""
        self._processing.discard(key)
        if key in self._dirty:
            self._dirty.discard(key)
            self.add(key)

    def close(self) -> None:
        """Let every `get` raise and ignore what is added from now on; keys being processed are left to finish."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._ready.set()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _arm(self) -> None:
        """Set the timer to the earliest due time that still counts."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            self._timer = asyncio.get_running_loop().call_at(self._heap[0][0], self._serve_due)

    def _serve_due(self) -> None:
        # A loop may call a timer up to its clock's resolution early; the entry that set the timer is due by definition.
        horizon = max(self._now(), self._heap[0][0]) if self._heap else self._now()
        while self._heap and self._heap[0][0] <= horizon:
            due, _sequence, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
        self._arm()
