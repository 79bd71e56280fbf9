"""The gate: permits come back exactly once, and the books balance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.limiter.gate import BodyBudget, Gate, Outcome, Permit, PermitError


def admit(gate: Gate) -> Permit:
    permit = gate.try_acquire()
    assert isinstance(permit, Permit)
    return permit


@given(st.lists(st.sampled_from(["in", "cancel", *Outcome]), max_size=60))
def test_the_books_balance_in_any_order(moves: list[str]) -> None:
    gate, out = Gate(), []
    for move in moves:
        if move == "in":
            out.append(admit(gate))
        elif out and move == "cancel":
            out.pop().cancel()
        elif out:
            out.pop().finish(Outcome(move))
        assert gate.drift == 0
        assert gate.in_flight == len(out)
    assert gate.admitted == sum(gate.finished.values()) + gate.cancelled + len(out)


@pytest.mark.parametrize("again", [Permit.cancel, lambda permit: permit.finish(Outcome.SUCCESS)])
def test_a_permit_cannot_be_returned_twice(again) -> None:
    gate = Gate()
    permit = admit(gate)
    permit.finish(Outcome.DROPPED)
    with pytest.raises(PermitError):
        again(permit)
    assert (gate.in_flight, gate.drift) == (0, 0)


def test_idle_is_told_whenever_the_last_permit_returns() -> None:
    gate, told = Gate(), []
    gate.on_idle = lambda: told.append(gate.in_flight)
    first, second = admit(gate), admit(gate)
    first.cancel()
    assert told == []
    second.finish(Outcome.SUCCESS)
    assert told == [0]


def test_the_body_budget_refuses_what_would_pass_it_and_takes_back() -> None:
    budget = BodyBudget(10)
    assert budget.take(10)
    assert not budget.take(1)
    budget.give(4)
    assert budget.take(4)
