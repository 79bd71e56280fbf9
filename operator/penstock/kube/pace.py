"""How fast requests may follow each other: one limit on writes for the whole process, and one pause for all of it.

Backends are retried one by one, each with its own growing delays. What protects the API server from all of them
together is here: a token bucket that every write passes, and the pause that an answer `429` asks for, which holds back
reads as well, whoever has got that answer.

Time is the running event loop's, so tests run it in virtual time.
"""

from __future__ import annotations

import asyncio
import logging

LONGEST_PAUSE_SECONDS = 60.0
"""An API server that asks for more is asked again after this."""

_log = logging.getLogger(__name__)


class Pace:
    """See the module's docstring.

    Args:
        writes_per_second: How many follow each other in the long run.
        burst: How many may pass at once after a rest.
    """

    def __init__(self, *, writes_per_second: float, burst: int) -> None:
        self._interval_seconds = 1.0 / writes_per_second
        self._rest_seconds = burst * self._interval_seconds
        # The bucket, told as the time at which it would be full again.
        self._full_at = float("-inf")
        self._paused_until = float("-inf")

    async def turn(self, *, write: bool) -> None:
        """Wait until the next request may be sent."""
        loop = asyncio.get_running_loop()
        if write:
            now = loop.time()
            self._full_at = max(self._full_at, now) + self._interval_seconds
            excess = self._full_at - now - self._rest_seconds
            if excess > 0:
                await asyncio.sleep(excess)
        await self._pause_is_over()

    async def _pause_is_over(self) -> None:
        left = self._paused_until - asyncio.get_running_loop().time()
        if left > 0:
            await asyncio.sleep(left)
            # It may have become longer meanwhile.
            await self._pause_is_over()

    def pause(self, seconds: float) -> None:
        """Hold back all requests for a while; a longer pause that is under way stays."""
        now = asyncio.get_running_loop().time()
        if now >= self._paused_until:
            _log.warning("the API server asks for a pause of %.0f s", seconds)
        self._paused_until = max(self._paused_until, now + min(seconds, LONGEST_PAUSE_SECONDS))
