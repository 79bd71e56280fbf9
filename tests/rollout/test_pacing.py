"""Who may take a new template now."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.rollout.pacing import SHORTEST_WAIT_SECONDS, WAITING_PER_SECOND, Pacer
from penstock.rollout.phase import Phase


def pacer_with(maximum=1, **phases):
    pacer = Pacer(maximum=maximum)
    for key, phase in phases.items():
        pacer.observe(key, phase)
    return pacer


def test_in_a_quiet_fleet_one_may_begin():
    assert pacer_with().ask("a") is None


def test_a_permission_holds_its_place_until_it_is_given_back():
    pacer = pacer_with()
    assert pacer.ask("a") is None
    assert "1 at a time" in pacer.ask("b").reason
    pacer.give_back("a")
    assert pacer.ask("b") is None


def test_one_that_has_a_permission_is_not_in_its_own_way():
    pacer = pacer_with()
    assert pacer.ask("a") is None
    assert pacer.ask("a") is None


@pytest.mark.parametrize("phase", [Phase.CHANGING, Phase.UPGRADING])
def test_a_rollout_holds_its_place_until_it_is_complete(phase):
    pacer = pacer_with(a=phase)
    assert pacer.ask("b") is not None
    pacer.observe("a", Phase.SETTLED)
    assert pacer.ask("b") is None


def test_as_many_as_are_permitted_run_at_a_time():
    pacer = pacer_with(maximum=2, a=Phase.UPGRADING)
    assert pacer.ask("b") is None
    assert "2 at a time" in pacer.ask("c").reason


def test_one_in_trouble_holds_all_others_back_whatever_is_permitted_and_is_named():
    pacer = pacer_with(maximum=5, a=Phase.FAILING)
    assert "the new replicas of a are in trouble" in pacer.ask("b").reason
    pacer.observe("a", Phase.UPGRADING)
    assert pacer.ask("b") is None


def test_a_deleted_one_is_no_longer_in_the_way():
    pacer = pacer_with(a=Phase.FAILING)
    pacer.forget("a")
    assert pacer.ask("b") is None
    assert pacer.busy == frozenset()


def test_a_backend_that_is_being_changed_is_not_upgraded_on_top():
    assert "already" in pacer_with(maximum=9, a=Phase.CHANGING).ask("a").reason


def test_the_more_wait_the_less_often_each_asks():
    pacer = pacer_with(busy=Phase.UPGRADING)
    assert pacer.ask(0).ask_again_seconds == SHORTEST_WAIT_SECONDS
    for key in range(1000):
        wait = pacer.ask(key)
    assert wait.ask_again_seconds == pytest.approx(1000 / WAITING_PER_SECOND)
    for key in range(999):
        pacer.content(key)
    assert pacer.ask(999).ask_again_seconds == SHORTEST_WAIT_SECONDS


KEYS = st.sampled_from("abcd")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), KEYS),
        st.tuples(st.just("give_back"), KEYS),
        st.tuples(st.just("forget"), KEYS),
        st.tuples(st.just("observe"), KEYS, st.sampled_from(Phase)),
    ),
    max_size=40,
)


@given(st.integers(1, 3), STEPS)
def test_no_sequence_of_events_gives_more_permissions_than_places(maximum, steps):
    pacer, phases, held = Pacer(maximum=maximum), {}, set()
    for step, key, *rest in steps:
        if step == "observe":
            pacer.observe(key, *rest)
            phases[key] = rest[0]
        elif step == "ask":
            busy = {one for one, phase in phases.items() if phase is not Phase.SETTLED} | held - {key}
            allowed = pacer.ask(key) is None
            assert allowed == (
                len(busy) < maximum
                and Phase.FAILING not in phases.values()
                and phases.get(key, Phase.SETTLED) is Phase.SETTLED
            )
            if allowed:
                held.add(key)
        else:
            getattr(pacer, step)(key)
            held.discard(key)
            if step == "forget":
                phases.pop(key, None)
