"""The engine in real time: a task that steps it, and answers that grow token by token.

One `Service` is the engine side of one server. `answer()` submits all sequences of a request and yields what each step
adds; leaving the iteration early (the client is gone) frees their blocks. Faults act here, where a real engine's would.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from e2e.fakevllm.detokenizer import Detokenizer
from e2e.fakevllm.engine import Clock, Emission, Engine, Finish, Sequence, Wish
from e2e.fakevllm.faults import Faults, Kind
from e2e.fakevllm.metrics import Metrics
from e2e.fakevllm.sampler import Ranked
from e2e.fakevllm.tokenizer import Tokenizer
from e2e.fakevllm.wire.errors import DrainingError, EngineDeadError, OverloadedError

IDLE_SECONDS = 0.2


class CutError(Exception):
    """The connection is to be cut here, without an end of the response."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What one step adds to one of a request's answers; `cached` is how much of its prompt was not computed."""

    index: int
    text: str
    tokens: tuple[int, ...]
    ranked: list[Ranked] | None
    finish: str | None
    stop_reason: int | str | None
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Texts:
    """How tokens become text for one request."""

    stop: tuple[str, ...] = ()
    include_stop: bool = False
    skip_special: bool = True


@dataclass(slots=True, eq=False)
class _Ear:
    """Where the tokens of one sequence go."""

    index: int
    detokenizer: Detokenizer
    deltas: asyncio.Queue[Delta | Exception]


class Service:
    """Engine, tokenizer, metrics and faults of one server.

    Args:
        engine: The scheduler.
        tokenizer: Of the model served.
        clock: How long steps take.
        metrics: Told about every step and token.
        faults: What goes wrong.
        max_queued_requests: Unfinished sequences above which requests are refused.
        max_queued_tokens: Prompt tokens in prefill at which requests are refused.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        tokenizer: Tokenizer,
        clock: Clock,
        metrics: Metrics,
        faults: Faults,
        max_queued_requests: int | None = None,
        max_queued_tokens: int | None = None,
    ) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.metrics = metrics
        self.faults = faults
        self.draining = False
        self.dead = False
        self.on_death: Callable[[], None] = lambda: None
        self._clock = clock
        self._max_queued_requests = max_queued_requests
        self._max_queued_tokens = max_queued_tokens
        self._ears: dict[Sequence, _Ear] = {}
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.heed()

    async def run(self) -> None:
        """Step the engine for ever; cancel the task to end it."""
        while True:
            if self.faults.get(Kind.DIE):
                self._die()
            if not self.engine.busy:
                self._idle.set()
            if self.faults.get(Kind.HANG) or not self.engine.busy or self.dead:
                self._work.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._work.wait(), IDLE_SECONDS)
                continue
            slow = self.faults.get(Kind.SLOW_TOKENS)
            step = self.engine.schedule(now=time.monotonic())
            self.metrics.stepped(None)
            await asyncio.sleep(self._clock.seconds(step.total) + (slow.seconds if slow else 0.0))
            if self.faults.get(Kind.HANG):
                continue
            emissions = self.engine.complete(step, now=time.monotonic())
            for emission in emissions:
                self._hear(emission)
            self.metrics.stepped(step)

    async def idle(self) -> None:
        """Wait until nothing is running or waiting."""
        await self._idle.wait()

    def wake(self) -> None:
        """Look at faults and queue now rather than at the next idle tick."""
        self._work.set()

    def heed(self) -> None:
        """Take note of faults that have been switched on or off: now, since an idle engine takes no step."""
        self.metrics.pretence = self.faults.get(Kind.LOAD)
        self.metrics.stepped(None)
        self.wake()

    def _die(self) -> None:
        if self.dead:
            return
        self.dead = True
        for ear in self._ears.values():
            ear.deltas.put_nowait(EngineDeadError())
        self.on_death()

    def _hear(self, emission: Emission) -> None:
        self.metrics.emitted(emission)
        ear = self._ears.get(emission.sequence)
        if ear is None:
            return
        ended_by_token = emission.finish is Finish.STOP
        ear.detokenizer.add(emission.token, text=not ended_by_token)
        finish, reason = emission.finish, emission.stop_token
        stop: int | str | None = reason
        if ear.detokenizer.stopped_by is not None:
            finish, stop = Finish.STOP, ear.detokenizer.stopped_by
            self.engine.stop(emission.sequence, Finish.STOP)
        text = ear.detokenizer.take(final=finish is not None)
        cached = emission.sequence.cached or 0
        ear.deltas.put_nowait(Delta(ear.index, text, (emission.token,), emission.ranked, finish, stop, cached))
        if finish is not None:
            del self._ears[emission.sequence]
            self.metrics.finished(emission.sequence, finish)

    def check_alive(self) -> None:
        """Raise `EngineDeadError` when the engine is dead."""
        if self.dead:
            raise EngineDeadError

    def check_rendering(self) -> None:
        """Raise the error that requests get which arrive while the engine drains: its tokenizer threads are gone."""
        if self.draining:
            raise DrainingError

    def admit(self, n: int) -> None:
        """Refuse a request of n sequences when a queue limit is reached.

        Raises:
            OverloadedError: The queue is full.
        """
        self.check_alive()
        unfinished = len(self.engine.running) + len(self.engine.waiting)
        if self._max_queued_requests is not None and unfinished + n > self._max_queued_requests:
            self.metrics.rejected("max_num_queued_reqs")
            raise OverloadedError(
                "The engine is currently busy and cannot accept new requests. "
                "Please try again later or on a different instance."
            )
        if self._max_queued_tokens is not None and self.engine.prefill_tokens >= self._max_queued_tokens:
            self.metrics.rejected("max_num_queued_tokens")
            raise OverloadedError(
                "The engine has reached its prefill token backlog limit. "
                "Please try again later or on a different instance."
            )

    async def answer(self, wishes: list[Wish], texts: Texts, *, n: int) -> AsyncIterator[Delta]:
        """Generate; `wishes` are numbered as the answers' indexes.

        Raises:
            EngineDeadError: The engine died meanwhile.
            CutError: A fault wants the connection cut.
        """
        abort, cut = self.faults.hit(Kind.ABORT), self.faults.hit(Kind.CUT)
        deltas: asyncio.Queue[Delta | Exception] = asyncio.Queue()
        sequences: list[Sequence] = []
        try:
            for index, wish in enumerate(wishes):
                self._idle.clear()
                sequence = self.engine.submit(wish, now=time.monotonic())
                sequences.append(sequence)
                detokenizer = Detokenizer(
                    self.tokenizer, stop=texts.stop, include_stop=texts.include_stop, skip_special=texts.skip_special
                )
                self._ears[sequence] = _Ear(index, detokenizer, deltas)
            self.wake()
            open_answers = len(wishes)
            sent = [0] * len(wishes)
            while open_answers:
                delta = await deltas.get()
                if isinstance(delta, Exception):
                    raise delta
                if cut is not None and sum(sent) >= cut.tokens:
                    raise CutError
                sent[delta.index] += 1
                if abort is not None and sent[delta.index] > abort.tokens:
                    yield Delta(delta.index, "", (), None, Finish.ABORT, None)
                    return
                yield delta
                open_answers -= delta.finish is not None
            for first in range(0, len(sequences), n):
                longest = max(sequence.produced for sequence in sequences[first : first + n])
                self.metrics.request_finished(n=n, longest=longest)
        finally:
            for sequence in sequences:
                self._ears.pop(sequence, None)
                self.engine.stop(sequence, Finish.ABORT)
            self.metrics.stepped(None)
