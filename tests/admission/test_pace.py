"""R in the gate: how many may go per second, and that this changes nothing about who goes first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admission.ask import Ask, Granted, Waiting
from penstock.admission.bands import Bands
from penstock.admission.gate import Gate
from penstock.admission.gatestate import HeldBy
from penstock.admission.limit import Limit
from penstock.admission.pace import DEBT_SECONDS, Pace
from penstock.admission.permit import Outcome, Permit
from penstock.api.admission import BUILT_IN_CLASSES


def gate_of(rate, **settings):
    gate = Gate(Bands(BUILT_IN_CLASSES), Limit(100, ceiling=1000), **settings)
    gate.set_rate(rate, 0.0)
    return gate


def request(band="normal", tenant="a", **fields):
    return Ask(band=band, tenant=tenant, budget_seconds=1000.0, **fields)


def test_a_request_without_a_token_waits_until_there_is_one():
    gate = gate_of(0.5)
    assert isinstance(gate.ask(request(), 0.0), Permit)
    waiting = gate.ask(request(), 0.0)
    assert isinstance(waiting, Waiting)
    assert gate.advance(0.0) == []
    assert (gate.held_by, gate.wake_at()) == (HeldBy.RATE, pytest.approx(2.0))
    [event] = gate.advance(gate.wake_at())
    assert (event.waiting, gate.held_by) == (waiting, HeldBy.NONE)


def test_the_highest_class_goes_first_whoever_came_first():
    gate = gate_of(1.0)
    gate.ask(request(), 0.0)
    later = [gate.ask(request(band), 0.0) for band in ("batch", "normal", "interactive")]
    order, now = [], 0.0
    while gate.depth:
        order += [later.index(event.waiting) for event in gate.advance(now) if isinstance(event, Granted)]
        now = gate.wake_at() or now
    assert order == [2, 1, 0]


@pytest.mark.parametrize("later", [1.0, 50.0])
def test_when_those_that_the_rate_held_have_left_nothing_is_held_any_more(later):
    gate = gate_of(0.1)
    gate.ask(request(), 0.0)
    waiting = gate.ask(request(), 0.0)
    gate.advance(0.0)
    waiting.leave(1.0)
    gate.advance(later)
    gate.set_rate(None, later)
    assert gate.held_by_within(10.0, later + 10.0) is HeldBy.NONE


def test_without_a_rate_nobody_waits_and_what_waited_for_it_goes():
    gate = gate_of(0.1)
    gate.ask(request(), 0.0)
    gate.ask(request(), 0.0)
    gate.set_rate(None, 1.0)
    assert len(gate.advance(1.0)) == 1
    assert all(isinstance(gate.ask(request(), 1.0), Permit) for _ in range(50))


def test_shadow_counts_who_would_wait_and_lets_all_go():
    gate = gate_of(0.5, shadow=True)
    permits = [gate.ask(request(), 0.0) for _ in range(3)]
    assert [permit.would is None for permit in permits] == [True, False, False]
    assert gate.depth == 2
    gate.advance(2.0)
    assert gate.depth == 1
    for permit in permits:
        permit.finish(Outcome.SUCCESS, 3.0)
    assert (gate.depth, gate.in_flight, gate.books.drift) == (0, 0, 0)


def test_an_engine_that_is_full_is_no_matter_of_the_rate():
    gate = Gate(Bands(BUILT_IN_CLASSES), Limit(1, ceiling=10))
    gate.set_rate(100.0, 0.0)
    gate.ask(request(), 0.0)
    gate.ask(request(), 0.5)
    gate.advance(0.5)
    assert (gate.held_by, gate.wake_at()) == (HeldBy.LIMIT, 1000.5)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_must_be_above_0(rate):
    with pytest.raises(ValueError, match="above 0"):
        Pace().set(rate, 0.0)


@given(
    rate=st.floats(0.3, 50),  # so fast that no debt is above its bound, where the rest is let off
    steps=st.lists(
        st.tuples(st.floats(0, 3), st.integers(1, 4), st.sampled_from(["interactive", "batch"])), max_size=60
    ),
)
def test_never_more_go_than_rate_and_burst_allow_and_every_request_ends(rate, steps):
    gate, now, went, open_permits = gate_of(rate, queue_limit=1000), 0.0, [], []

    def collect():
        for event in gate.advance(now):
            if isinstance(event, Granted):
                went.append((now, event.permit.requests))
                open_permits.append(event.permit)

    for pause, requests, band in steps:
        now += pause
        decision = gate.ask(request(band, requests=requests), now)
        if isinstance(decision, Permit):
            went.append((now, decision.requests))
            open_permits.append(decision)
        collect()
    for _ in range(10_000):
        if not gate.depth:
            break
        while open_permits:
            open_permits.pop().cancel(now)
        wake = gate.wake_at()
        assert wake is None or wake >= now
        now = max(now, wake or now)
        collect()
    total = sum(requests for _, requests in went)
    largest = max((requests for _, requests in went), default=0)
    assert total <= max(1.0, 2 * rate) + rate * now + largest + 1e-3
    assert gate.depth == 0
    for permit in open_permits:
        permit.cancel(now)
    assert (gate.in_flight, gate.books.drift) == (0, 0)


@pytest.mark.parametrize("rate", [0.5, 20.0], ids=["slow", "fast"])
def test_a_request_for_very_many_choices_keeps_nobody_out_for_long(rate):
    gate = gate_of(rate)
    assert isinstance(gate.ask(request(requests=1000), 3.0), Permit)
    assert gate.pace.wait_seconds(1, 3.0) <= DEBT_SECONDS + 1 / rate
    gate.set_rate(rate / 2, 3.0)  # what is owed is told in seconds of the rate of now
    assert gate.pace.wait_seconds(1, 3.0) <= DEBT_SECONDS + 2 / rate
