"""The engine: continuous batching over KV blocks, as a state machine that is told the time.

One step is `schedule()` and, after as long as the token clock says, `complete()`. Scheduling goes through the running
sequences first, each with as many of its uncomputed tokens as the step's token budget allows (so long prompts are
prefilled in pieces), then admits waiting ones in order of arrival. When no block is free for a running sequence, the
youngest running one is preempted: it loses its blocks and goes to the head of the queue, to be computed again.
A sequence whose tokens are all computed gets one more. Nothing here reads a clock, sleeps or does input or output.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from e2e.fakevllm.kv import BlockPool, Table
from e2e.fakevllm.sampler import Choice, Ranked, Sampler, stir


class Finish(StrEnum):
    """Why a sequence ended, in the words of the wire."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Limits:
    """What `vllm serve` was told about the engine's size."""

    max_sequences: int = 128
    max_step_tokens: int = 4096
    max_model_tokens: int = 4096
    blocks: int = 8192
    block_size: int = 128
    caching: bool = True
    priorities: bool = False


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds a step takes: a constant plus a share for every token computed in it."""

    step_seconds: float = 0.005
    token_seconds: float = 0.0

    def seconds(self, tokens: int) -> float:
        """Return how long a step over that many tokens takes."""
        return self.step_seconds + self.token_seconds * tokens


@dataclass(frozen=True, slots=True)
class Wish:
    """What one sequence was asked for."""

    prompt: tuple[int, ...]
    max_tokens: int
    choice: Choice = field(default_factory=Choice)
    end_tokens: frozenset[int] = frozenset()
    stop_tokens: frozenset[int] = frozenset()
    min_tokens: int = 0
    logprobs: int | None = None
    priority: int = 0
    salt: str | None = None


@dataclass(slots=True, eq=False)
class Sequence:
    """One prompt on its way through the engine; times are those the caller gave."""

    wish: Wish
    queued_at: float
    tokens: list[int]
    state: int
    table: Table = field(default_factory=Table)
    computed: int = 0
    cached: int | None = None
    preemptions: int = 0
    scheduled_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    finish: Finish | None = None

    @property
    def produced(self) -> int:
        """Number of tokens generated so far."""
        return len(self.tokens) - len(self.wish.prompt)

    @property
    def prefilling(self) -> bool:
        """Whether no token has been generated yet."""
        return self.produced == 0


@dataclass(frozen=True, slots=True)
class Emission:
    """One new token of one sequence; `stop_token` is set when a requested stop token ended it."""

    sequence: Sequence
    token: int
    ranked: list[Ranked] | None
    finish: Finish | None
    stop_token: int | None
    first: bool
    previous_at: float | None


@dataclass(slots=True)
class Step:
    """What a scheduled step computes: tokens per sequence, and of those how many belong to prompts."""

    tokens: dict[Sequence, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Tokens computed in this step."""
        return sum(self.tokens.values())


@dataclass(slots=True)
class Counters:
    """What the engine has counted since its start."""

    steps: int = 0
    preemptions: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0


class Engine:
    """Schedules sequences over one pool of KV blocks."""

    def __init__(self, limits: Limits, sampler: Sampler) -> None:
        self.limits = limits
        self.pool = BlockPool(limits.blocks, limits.block_size, caching=limits.caching)
        self.counters = Counters()
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.sampler = sampler

    @property
    def busy(self) -> bool:
        """Whether there is anything to schedule."""
        return bool(self.running or self.waiting)

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens of all sequences that have produced nothing yet."""
        return sum(len(sequence.wish.prompt) for sequence in self.sequences() if sequence.prefilling)

    def sequences(self) -> Iterator[Sequence]:
        """Yield every unfinished sequence, running ones first."""
        yield from self.running
        yield from self.waiting

    def submit(self, wish: Wish, *, now: float) -> Sequence:
        """Queue a sequence: at the end, or, where priorities count, before all with a higher number."""
        sequence = Sequence(
            wish=wish,
            queued_at=now,
            tokens=list(wish.prompt),
            state=self.sampler.begin(wish.prompt, wish.choice),
        )
        position = len(self.waiting)
        while self.limits.priorities and position and self.waiting[position - 1].wish.priority > wish.priority:
            position -= 1
        self.waiting.insert(position, sequence)
        return sequence

    def stop(self, sequence: Sequence, finish: Finish) -> None:
        """End a sequence from outside (client gone, stop string seen) and free its blocks; nothing if it has ended."""
        if sequence.finish is not None:
            return
        sequence.finish = finish
        self.pool.release(sequence.table)
        if sequence in self.running:
            self.running.remove(sequence)
        else:
            self.waiting.remove(sequence)

    def schedule(self, *, now: float) -> Step:
        """Choose what the next step computes and give out the blocks for it."""
        step = Step()
        budget = self.limits.max_step_tokens
        preempted = False
        index = 0
        while index < len(self.running) and budget > 0:
            sequence = self.running[index]
            wanted = min(len(sequence.tokens) - sequence.computed, budget)
            while not self.pool.grow(sequence.table, sequence.computed + wanted):
                preempted = True
                victim = self.running.pop()
                budget += step.tokens.pop(victim, 0)
                self._preempt(victim)
                if victim is sequence:
                    break
            else:
                step.tokens[sequence] = wanted
                budget -= wanted
                index += 1
        if not preempted:
            self._admit(step, budget, now=now)
        return step

    def _admit(self, step: Step, budget: int, *, now: float) -> None:
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_sequences:
            sequence = self.waiting[0]
            reuse = self.pool.cached(sequence.tokens, salt=sequence.wish.salt)
            hits = len(reuse) * self.pool.block_size
            wanted = min(len(sequence.tokens) - hits, budget)
            if not self.pool.grow(sequence.table, hits + wanted, reuse=reuse):
                return
            self.waiting.popleft()
            self.running.append(sequence)
            if sequence.cached is None:
                sequence.cached = hits
                self.counters.prefix_queries += len(sequence.tokens)
                self.counters.prefix_hits += hits
            if sequence.scheduled_at is None:
                sequence.scheduled_at = now
            sequence.computed = hits
            step.tokens[sequence] = wanted
            budget -= wanted

    def _preempt(self, sequence: Sequence) -> None:
        self.counters.preemptions += 1
        sequence.preemptions += 1
        sequence.computed = 0
        self.pool.release(sequence.table)
        self.waiting.appendleft(sequence)

    def complete(self, step: Step, *, now: float) -> list[Emission]:
        """Account for a step that has been computed and return the tokens it brought."""
        self.counters.steps += 1
        emissions: list[Emission] = []
        for sequence, count in step.tokens.items():
            if sequence.finish is not None:
                continue
            sequence.computed += count
            self.pool.remember(sequence.table, sequence.tokens, computed=sequence.computed, salt=sequence.wish.salt)
            if sequence.computed == len(sequence.tokens):
                emissions.append(self._emit(sequence, now=now))
        return emissions

    def _emit(self, sequence: Sequence, *, now: float) -> Emission:
        wish = sequence.wish
        held_back = wish.end_tokens | wish.stop_tokens if sequence.produced < wish.min_tokens else frozenset[int]()
        token = self.sampler.draw(sequence.state, wish.choice, forbidden=held_back)
        ranked = None if wish.logprobs is None else self.sampler.rank(sequence.state, token, wish.logprobs)
        sequence.state = stir(sequence.state, token)
        sequence.tokens.append(token)
        previous, sequence.last_token_at = sequence.last_token_at, now
        first = sequence.first_token_at is None
        if first:
            sequence.first_token_at = now
        finish, stop_token = self._judge(sequence, token)
        if finish is not None:
            self.stop(sequence, finish)
        return Emission(sequence, token, ranked, finish, stop_token, first, previous)

    def _judge(self, sequence: Sequence, token: int) -> tuple[Finish | None, int | None]:
        wish = sequence.wish
        if sequence.produced >= wish.min_tokens:
            if token in wish.end_tokens:
                return Finish.STOP, None
            if token in wish.stop_tokens:
                return Finish.STOP, token
        if sequence.produced >= wish.max_tokens or len(sequence.tokens) >= self.limits.max_model_tokens:
            return Finish.LENGTH, None
        return None, None
