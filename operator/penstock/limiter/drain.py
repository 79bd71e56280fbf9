"""Drain: how a replica leaves without cutting a stream, as a pure state machine.

Theory of operation. Deleting a pod removes it from the Service and runs the engine's preStop hook at the same time, so
for some seconds new requests still arrive: the replica is a *lame duck*, not ready but still serving. Then it is
*draining*: new requests are refused by an answer (a refused connection would be worse), running ones go on. When none
is left, the hook is answered, and the replica is *drained*: kubelet stops the engine. No timer reopens a drained
replica, because engines go on answering health checks while they stop. Only an engine that was seen *gone* and then
ready again (its container was restarted, the pod was not deleted) does.

`step` maps (state, event, facts) to (state, effects) through `TABLE`; an event without an entry changes nothing. The
caller performs the effects and sends `TICK` at `State.wake_at`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum


class Phase(StrEnum):
    """Where the replica is on its way out."""

    ACCEPTING = "accepting"
    LAME_DUCK = "lame_duck"
    DRAINING = "draining"
    DRAINED = "drained"
    RESTARTING = "restarting"
    TERMINATED = "terminated"


class Event(StrEnum):
    """What can happen."""

    DRAIN = "drain"
    """The preStop hook asked."""
    TICK = "tick"
    """`State.wake_at` has come."""
    IDLE = "idle"
    """The last request in flight ended."""
    ENGINE_GONE = "engine_gone"
    """The engine refused or reset a connection."""
    ENGINE_READY = "engine_ready"
    """The engine answered that it is healthy."""
    TERMINATE = "terminate"
    """SIGTERM."""


class Effect(StrEnum):
    """What the caller has to do."""

    CUT = "cut"
    """End every open request with an error object."""
    ANSWER = "answer"
    """Answer everybody who waits for the drain."""
    REOPEN = "reopen"
    """Serve again; only logged."""
    EXIT = "exit"
    """Flush and end the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The drain's state; times are seconds of the caller's monotonic clock.

    Attributes:
        phase: Where it stands.
        wake_at: When `TICK` is due; None when no time matters.
        deadline: When running requests are cut; None before a drain.
    """

    phase: Phase = Phase.ACCEPTING
    wake_at: float | None = None
    deadline: float | None = None

    @property
    def admits(self) -> bool:
        """Whether new requests are served."""
        return self.phase in {Phase.ACCEPTING, Phase.LAME_DUCK}

    @property
    def leaving(self) -> bool:
        """Whether responses tell their clients to connect anew next time."""
        return self.phase is not Phase.ACCEPTING


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the step may depend on besides state and event.

    Attributes:
        now: Monotonic time in seconds.
        in_flight: Generation requests at the engine.
        engine_ready: Whether the engine was healthy when last heard of.
        lame_duck_seconds, timeout_seconds: The replica's settings.
    """

    now: float
    in_flight: int
    engine_ready: bool
    lame_duck_seconds: float
    timeout_seconds: float


Step = tuple[State, tuple[Effect, ...]]
Transition = Callable[[State, Facts], Step]

DRAINED = State(phase=Phase.DRAINED)
RESTARTING = State(phase=Phase.RESTARTING)
TERMINATED = State(phase=Phase.TERMINATED)


def _begin(_: State, facts: Facts) -> Step:
    if not facts.engine_ready:  # there is nobody to finish the requests
        return DRAINED, (Effect.CUT, Effect.ANSWER)
    ends = facts.now + facts.lame_duck_seconds
    return State(phase=Phase.LAME_DUCK, wake_at=ends, deadline=ends + facts.timeout_seconds), ()


def _end_lame_duck(state: State, facts: Facts) -> Step:
    if state.wake_at is not None and facts.now < state.wake_at:
        return state, ()
    if facts.in_flight == 0:
        return DRAINED, (Effect.ANSWER,)
    return replace(state, phase=Phase.DRAINING, wake_at=state.deadline), ()


def _end_draining(state: State, facts: Facts) -> Step:
    if state.deadline is not None and facts.now < state.deadline:
        return state, ()
    return DRAINED, (Effect.CUT, Effect.ANSWER)


def _to(state: State, *effects: Effect) -> Transition:
    return lambda _state, _facts: (state, effects)


def _stay(*effects: Effect) -> Transition:
    return lambda state, _facts: (state, effects)


TABLE: dict[tuple[Phase, Event], Transition] = {
    (Phase.ACCEPTING, Event.DRAIN): _begin,
    (Phase.ACCEPTING, Event.TERMINATE): _to(TERMINATED, Effect.CUT, Effect.EXIT),
    (Phase.LAME_DUCK, Event.TICK): _end_lame_duck,
    (Phase.LAME_DUCK, Event.ENGINE_GONE): _to(RESTARTING, Effect.CUT, Effect.ANSWER),
    (Phase.LAME_DUCK, Event.TERMINATE): _to(TERMINATED, Effect.CUT, Effect.ANSWER, Effect.EXIT),
    (Phase.DRAINING, Event.TICK): _end_draining,
    (Phase.DRAINING, Event.IDLE): _to(DRAINED, Effect.ANSWER),
    (Phase.DRAINING, Event.ENGINE_GONE): _to(RESTARTING, Effect.CUT, Effect.ANSWER),
    (Phase.DRAINING, Event.TERMINATE): _to(TERMINATED, Effect.CUT, Effect.ANSWER, Effect.EXIT),
    (Phase.DRAINED, Event.DRAIN): _stay(Effect.ANSWER),
    (Phase.DRAINED, Event.ENGINE_GONE): _to(RESTARTING),
    (Phase.DRAINED, Event.TERMINATE): _to(TERMINATED, Effect.EXIT),
    (Phase.RESTARTING, Event.DRAIN): _stay(Effect.ANSWER),
    (Phase.RESTARTING, Event.ENGINE_READY): _to(State(), Effect.REOPEN),
    (Phase.RESTARTING, Event.TERMINATE): _to(TERMINATED, Effect.EXIT),
    (Phase.TERMINATED, Event.DRAIN): _stay(Effect.ANSWER),
}


def step(state: State, event: Event, facts: Facts) -> Step:
    """Return the next state and what the caller has to do now."""
    transition = TABLE.get((state.phase, event))
    return (state, ()) if transition is None else transition(state, facts)
