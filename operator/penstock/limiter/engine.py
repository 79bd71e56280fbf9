"""The engine as the limiter sees it: polled, one question at a time.

Theory of operation. Until the engine is ready its health path is asked every 100 ms, so that a replica serves within a
tenth of a second after its engine could. Then health and metrics are asked together, once per interval of the engine:
llama-server notices that a client has left only when nothing asks it more often than about once a second.

An answer that is late says nothing: a busy engine is slow, and taking it out of service would make its neighbours
busier. Only evidence counts: a refused or reset connection, or an answer that says "not healthy".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import StrEnum

from penstock.engines.facts import EngineFacts
from penstock.limiter.fetch import fetch
from penstock.limiter.head import ResponseError
from penstock.limiter.upstream import Pool

logger = logging.getLogger(__name__)

FAST_INTERVAL_SECONDS = 0.1
POLL_TIMEOUT_SECONDS = 1.0
ALIVE_GRACE_SECONDS = 30.0
FRESH_POLLS = 3


class Sight(StrEnum):
    """What one look at the engine showed."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    """It answered, but not with 200: loading, or broken."""
    GONE = "gone"
    """It refused or reset the connection."""
    LATE = "late"
    """No answer in time: no evidence either way."""


class EngineView:
    """What the looks add up to; the clock is passed in.

    Attributes:
        ready: Healthy when last heard of.
        last: The last look that was evidence; None before the first.
        failing_since: When the engine, once ready, stopped being healthy; None while it is or never was.
        looks: How many looks there were, by result.
    """

    def __init__(self) -> None:
        self.ready = False
        self.last: Sight | None = None
        self.failing_since: float | None = None
        self.looks: dict[Sight, int] = dict.fromkeys(Sight, 0)

    def see(self, sight: Sight, *, now: float) -> bool:
        """Add a look; return whether it changed what is known."""
        self.looks[sight] += 1
        if sight is Sight.LATE:
            return False
        changed = sight is not self.last
        if sight is Sight.HEALTHY:
            self.failing_since = None
        elif self.ready:
            self.failing_since = now
        self.ready = sight is Sight.HEALTHY
        self.last = sight
        return changed

    @property
    def started(self) -> bool:
        """The startup probe's question: has the engine of now answered that it is healthy?"""
        return self.ready

    def alive(self, *, now: float) -> bool:
        """The liveness probe's question, by a plain rule.

        The engine is dead when it was ready once and has since been refusing connections or calling itself unhealthy
        without a break for 30 seconds. Being late is not being dead, so a busy engine is never restarted; one that
        loads for the first time is the startup probe's business. An engine that hangs and still takes connections is
        not found by this rule.
        """
        return self.failing_since is None or now - self.failing_since < ALIVE_GRACE_SECONDS


class Poller:
    """Looks at the engine and keeps its metrics text.

    Attributes:
        view: What the looks add up to.
        fast: Ask at the fast interval even while ready: a restart must not be missed.
        on_change: Told of every look that changed what is known.
        on_metrics: Given every metrics text, and when it was asked for.
    """

    def __init__(self, *, facts: EngineFacts, pool: Pool, loop: asyncio.AbstractEventLoop) -> None:
        self.view = EngineView()
        self.fast = False
        self.on_change: Callable[[Sight], None] | None = None
        self.on_metrics: Callable[[bytes, float], None] | None = None
        self._facts = facts
        self._pool = pool
        self._loop = loop
        self._hurry = asyncio.Event()
        self._metrics = b""
        self._metrics_at: float | None = None
        self._metrics_due = 0.0

    @property
    def metrics(self) -> bytes | None:
        """The engine's metrics as last read; None when older than three polls, for old numbers must not look new."""
        if self._metrics_at is None or self._loop.time() - self._metrics_at > self._stale_seconds:
            return None
        return self._metrics

    @property
    def metrics_age_seconds(self) -> float | None:
        """How old the metrics are; None before they were first read."""
        return None if self._metrics_at is None else self._loop.time() - self._metrics_at

    @property
    def _stale_seconds(self) -> float:
        return FRESH_POLLS * self._facts.poll_interval_seconds

    def refused(self) -> None:
        """The relay was refused by the engine: that is a look, too."""
        self._see(Sight.GONE)
        self._hurry.set()

    def suspect(self) -> None:
        """Look now."""
        self._hurry.set()

    def look_soon(self, seconds: float) -> None:
        """Look, and read the metrics, in so many seconds, unless that is done before."""
        self._metrics_due = min(self._metrics_due, self._loop.time() + seconds)
        self._loop.call_later(seconds, self._hurry.set)

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            began = self._loop.time()
            self._hurry.clear()
            self._see(await self._look())
            if self.view.ready and began >= self._metrics_due:
                self._metrics_due = began + self._facts.poll_interval_seconds
                await self._read_metrics()
            slow = self.view.ready and not self.fast
            interval = self._facts.poll_interval_seconds if slow else FAST_INTERVAL_SECONDS
            await self._pause(began + interval - self._loop.time())

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(seconds, FAST_INTERVAL_SECONDS / 2)):
                await self._hurry.wait()
        except TimeoutError:
            return
        await asyncio.sleep(FAST_INTERVAL_SECONDS / 2)  # many streams that break together ask for one look

    async def _look(self) -> Sight:
        try:
            async with asyncio.timeout(POLL_TIMEOUT_SECONDS):
                answer = await fetch(self._pool, self._facts.health_path)
        except TimeoutError:
            return Sight.LATE
        except OSError:
            return Sight.GONE
        except ResponseError as error:
            logger.warning("engine health answer is no HTTP error=%r", str(error))
            return Sight.UNHEALTHY
        return Sight.HEALTHY if answer.status == 200 else Sight.UNHEALTHY

    async def _read_metrics(self) -> None:
        asked_at = self._loop.time()
        try:
            async with asyncio.timeout(POLL_TIMEOUT_SECONDS):
                answer = await fetch(self._pool, self._facts.metrics_path)
        except (OSError, ResponseError) as error:  # includes TimeoutError
            logger.debug("engine metrics not read error=%r", str(error))
            return
        if answer.status == 200:
            self._metrics = answer.body
            self._metrics_at = self._loop.time()
            if self.on_metrics is not None:
                self.on_metrics(answer.body, asked_at)

    def _see(self, sight: Sight) -> None:
        if self.view.see(sight, now=self._loop.time()):
            logger.info("engine %s", sight)
            if self.on_change is not None:
                self.on_change(sight)
