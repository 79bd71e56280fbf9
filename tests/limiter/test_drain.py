"""The drain's state machine: every row of its table, and what holds in any order of events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.limiter.drain import DRAINED, RESTARTING, TERMINATED, Effect, Event, Facts, Phase, State, step

LAME = State(phase=Phase.LAME_DUCK, wake_at=110.0, deadline=410.0)
DRAINING = State(phase=Phase.DRAINING, wake_at=410.0, deadline=410.0)


def facts(now: float = 100.0, in_flight: int = 1, *, ready: bool = True) -> Facts:
    return Facts(now=now, in_flight=in_flight, engine_ready=ready, lame_duck_seconds=10, timeout_seconds=300)


ROWS = {
    "a drain begins as lame duck": (State(), Event.DRAIN, facts(), LAME, ()),
    "without an engine it is over at once": (
        State(), Event.DRAIN, facts(ready=False), DRAINED, (Effect.CUT, Effect.ANSWER)),
    "a drain is joined, not begun anew": (LAME, Event.DRAIN, facts(now=105), LAME, ()),
    "an idle lame duck still waits for its time": (LAME, Event.IDLE, facts(now=105, in_flight=0), LAME, ()),
    "an early timer changes nothing": (LAME, Event.TICK, facts(now=109.9), LAME, ()),
    "a lame duck with work goes on to drain": (LAME, Event.TICK, facts(now=110), DRAINING, ()),
    "one without is drained": (LAME, Event.TICK, facts(now=110, in_flight=0), DRAINED, (Effect.ANSWER,)),
    "the last request ends the drain": (DRAINING, Event.IDLE, facts(in_flight=0), DRAINED, (Effect.ANSWER,)),
    "the deadline cuts what is left": (DRAINING, Event.TICK, facts(now=410), DRAINED, (Effect.CUT, Effect.ANSWER)),
    "an early deadline does not": (DRAINING, Event.TICK, facts(now=409), DRAINING, ()),
    "a dead engine ends a lame duck": (LAME, Event.ENGINE_GONE, facts(), RESTARTING, (Effect.CUT, Effect.ANSWER)),
    "a dead engine ends a drain": (DRAINING, Event.ENGINE_GONE, facts(), RESTARTING, (Effect.CUT, Effect.ANSWER)),
    "a healthy engine does not reopen a drained replica": (DRAINED, Event.ENGINE_READY, facts(), DRAINED, ()),
    "no time reopens it": (DRAINED, Event.TICK, facts(now=1e9), DRAINED, ()),
    "an engine that is gone may come back": (DRAINED, Event.ENGINE_GONE, facts(), RESTARTING, ()),
    "and then reopens it": (RESTARTING, Event.ENGINE_READY, facts(), State(), (Effect.REOPEN,)),
    "a drained replica answers again": (DRAINED, Event.DRAIN, facts(), DRAINED, (Effect.ANSWER,)),
    "a restarting one, too": (RESTARTING, Event.DRAIN, facts(), RESTARTING, (Effect.ANSWER,)),
    "SIGTERM cuts what is open": (State(), Event.TERMINATE, facts(), TERMINATED, (Effect.CUT, Effect.EXIT)),
    "SIGTERM in a lame duck": (
        LAME, Event.TERMINATE, facts(), TERMINATED, (Effect.CUT, Effect.ANSWER, Effect.EXIT)),
    "SIGTERM in a drain": (
        DRAINING, Event.TERMINATE, facts(), TERMINATED, (Effect.CUT, Effect.ANSWER, Effect.EXIT)),
    "SIGTERM after it": (DRAINED, Event.TERMINATE, facts(), TERMINATED, (Effect.EXIT,)),
    "SIGTERM while restarting": (RESTARTING, Event.TERMINATE, facts(), TERMINATED, (Effect.EXIT,)),
    "an engine that comes and goes is no drain": (State(), Event.ENGINE_GONE, facts(), State(), ()),
}  # fmt: skip


@pytest.mark.parametrize(("state", "event", "seen", "after", "effects"), ROWS.values(), ids=ROWS.keys())
def test_step(state: State, event: Event, seen: Facts, after: State, effects: tuple[Effect, ...]) -> None:
    assert step(state, event, seen) == (after, effects)


EVENTS = st.lists(
    st.tuples(st.sampled_from(list(Event)), st.floats(0, 100), st.integers(0, 2), st.booleans()), max_size=30
)


@given(EVENTS)
def test_every_caller_of_drain_is_answered_or_still_waiting_for_a_time_that_comes(
    events: list[tuple[Event, float, int, bool]],
) -> None:
    state, now, waiting = State(), 0.0, 0
    for event, seconds, in_flight, ready in events:
        now += seconds
        waiting += event is Event.DRAIN
        state, effects = step(state, event, facts(now, in_flight, ready=ready))
        if Effect.ANSWER in effects:
            waiting = 0
        if waiting:
            assert state.wake_at is not None
            assert state.phase in {Phase.LAME_DUCK, Phase.DRAINING}


@given(EVENTS)
def test_a_drained_replica_reopens_only_after_its_engine_was_gone_and_came_back(
    events: list[tuple[Event, float, int, bool]],
) -> None:
    state, now, gone = State(), 0.0, False
    for event, seconds, in_flight, ready in events:
        now += seconds
        before, (state, _) = state, step(state, event, facts(now, in_flight, ready=ready))
        gone = (gone or event is Event.ENGINE_GONE) and before.phase is not Phase.ACCEPTING
        if before.phase is not Phase.ACCEPTING and state.phase is Phase.ACCEPTING:
            assert gone
            assert event is Event.ENGINE_READY
