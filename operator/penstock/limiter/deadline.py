"""A time limit that moves often and is seldom reached.

Moving a timer with every read would cost more than the read. So the timer stays where it is when the limit moves back,
and looks at the limit when it fires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    """One limit at a time, of one owner."""

    def __init__(self, loop: asyncio.AbstractEventLoop, expired: Callable[[], None]) -> None:
        self._loop = loop
        self._expired = expired
        self._at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = 0.0

    def set(self, seconds: float) -> None:
        """Expire in `seconds`, instead of whatever was set before."""
        self._at = at = self._loop.time() + seconds
        if self._timer is not None:
            if self._fires_at <= at:
                return
            self._timer.cancel()
        self._start(at)

    def clear(self) -> None:
        """Never expire, until set again."""
        self._at = None

    def close(self) -> None:
        """Never expire and free the timer."""
        self._at = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        if self._at is None:
            return
        if self._at > self._loop.time():
            self._start(self._at)
            return
        self._at = None
        self._expired()

    def _start(self, at: float) -> None:
        self._fires_at = at
        self._timer = self._loop.call_at(at, self._fire)
