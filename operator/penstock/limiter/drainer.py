"""The drain's shell: keeps the state, the clock and the callers who wait, and performs the effects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from penstock.limiter.drain import Effect, Event, Facts, State, step

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """What the drain can find out and do.

    Attributes:
        in_flight: Generation requests at the engine.
        engine_ready: Whether the engine is healthy.
        cut: End every open request with an error object.
        exit: Flush and end the process.
        changed: Told of every new state.
    """

    in_flight: Callable[[], int]
    engine_ready: Callable[[], bool]
    cut: Callable[[], None]
    exit: Callable[[], None]
    changed: Callable[[State], None]


class Drainer:
    """Runs `drain.step` on a loop.

    Attributes:
        state: Where the drain stands.
    """

    def __init__(
        self, *, hands: Hands, loop: asyncio.AbstractEventLoop, lame_duck_seconds: float, timeout_seconds: float
    ) -> None:
        self.state = State()
        self._hands = hands
        self._loop = loop
        self._lame_duck_seconds = lame_duck_seconds
        self._timeout_seconds = timeout_seconds
        self._waiters: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None

    def drain(self, answer: Callable[[], None]) -> None:
        """Begin to drain, or join the drain that runs; `answer` is called once when the engine may be stopped."""
        self._waiters.append(answer)
        self.handle(Event.DRAIN)

    def forget(self, answer: Callable[[], None]) -> None:
        """A caller waits no longer; the drain goes on."""
        if answer in self._waiters:
            self._waiters.remove(answer)

    def handle(self, event: Event) -> None:
        """Take one step."""
        facts = Facts(
            now=self._loop.time(),
            in_flight=self._hands.in_flight(),
            engine_ready=self._hands.engine_ready(),
            lame_duck_seconds=self._lame_duck_seconds,
            timeout_seconds=self._timeout_seconds,
        )
        before, (self.state, effects) = self.state, step(self.state, event, facts)
        if self.state != before:
            logger.info("drain %s -> %s event=%s in_flight=%d", before.phase, self.state.phase, event, facts.in_flight)
            self._hands.changed(self.state)
        if self.state != before or event is Event.TICK:  # a timer may fire a moment too early
            self._set_timer()
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        if effect is Effect.CUT:
            self._hands.cut()
        elif effect is Effect.ANSWER:
            waiters, self._waiters = self._waiters, []
            for answer in waiters:
                answer()
        elif effect is Effect.EXIT:
            self._hands.exit()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.state.wake_at is not None:
            self._timer = self._loop.call_at(self.state.wake_at, self.handle, Event.TICK)
