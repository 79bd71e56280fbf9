"""How many replicas are asked at the same time, so that silent ones do not hold up the others.

A replica that does not answer holds its place for a whole time-out. One that was late last time therefore waits in a
small room of its own until it answers: whatever number of replicas is silent, they hold up each other and nobody else.
There nobody waits for long: one that gets no place in time is late again, and asked again in its next round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

PLACES = 64
LATE_PLACES = 8
REMEMBERED_REPLICAS = 20_000

T = TypeVar("T")


class Rooms:
    """See the module's docstring.

    Args:
        timeout_seconds: For an answer; and for a place in the small room.
    """

    def __init__(self, *, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._room = asyncio.Semaphore(PLACES)
        self._small_room = asyncio.Semaphore(LATE_PLACES)
        self._late: dict[str, None] = {}

    async def ask(self, pod_uid: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do it when there is a place.

        Raises:
            TimeoutError: It was late, or got no place.
        """
        room = self._room
        if pod_uid in self._late:
            room = self._small_room
            async with asyncio.timeout(self._timeout_seconds):
                await room.acquire()
        else:
            await room.acquire()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                result = await work()
        except TimeoutError:
            self._remember(pod_uid)
            raise
        except Exception:
            self.forget(pod_uid)  # a refusal is quick
            raise
        else:
            self.forget(pod_uid)
            return result
        finally:
            room.release()

    def forget(self, pod_uid: str) -> None:
        """A replica is gone, or has answered."""
        self._late.pop(pod_uid, None)

    def _remember(self, pod_uid: str) -> None:
        self._late.pop(pod_uid, None)
        while len(self._late) >= REMEMBERED_REPLICAS:
            del self._late[next(iter(self._late))]
        self._late[pod_uid] = None
