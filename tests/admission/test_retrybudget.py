"""The retry budget: what a retry is, and how many there may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admission.recent import WINDOW_SECONDS
from penstock.admission.retrybudget import (
    FLOOR,
    MEMORY_LIMIT,
    MEMORY_SECONDS,
    RetryBudget,
    fingerprint,
)

MARK = fingerprint("default /v1/completions", [b"{}"])


@pytest.mark.parametrize(
    ("after_seconds", "end", "count", "is_retry"),
    [
        pytest.param(1.0, (), 0, False, id="first time, or while the first is under way"),
        pytest.param(1.0, (), 1, True, id="the client says so"),
        pytest.param(
            MEMORY_SECONDS - 1, ("unanswered",), 0, True, id="again within two minutes of an end without answer"
        ),
        pytest.param(MEMORY_SECONDS, ("unanswered",), 0, False, id="again later"),
        pytest.param(1.0, ("answered",), 0, False, id="again after an answer"),
        pytest.param(1.0, ("unanswered", "answered"), 0, False, id="again after a retry was answered"),
        pytest.param(1.0, ("answered", "unanswered"), 0, True, id="again after an answer and an end without one"),
        pytest.param(1.0, ("answered",), 2, True, id="after an answer, but the client says so"),
    ],
)
def test_a_retry_is_known_by_its_header_or_its_body(
    after_seconds: float, end: tuple[str, ...], count: int, is_retry: bool
) -> None:
    budget, now = RetryBudget(20), 1000.0
    for one in end:
        if one == "answered":
            budget.answered(MARK)
        else:
            budget.unanswered(MARK, now)
    assert budget.is_retry(MARK, retry_count=count, now=now + after_seconds) is is_retry


def test_a_fingerprint_belongs_to_caller_and_body_and_not_to_how_it_was_read() -> None:
    assert fingerprint("a", [b"xyz"]) == fingerprint("a", [b"x", b"", b"yz"])
    different = {
        fingerprint(caller, [body])
        for caller, body in (("a", b"x"), ("b", b"x"), ("a", b"y"), ("ax", b""), ("", b"ax"))
    }
    assert len(different) == 5


def test_a_quiet_replica_serves_the_first_retries_and_no_more() -> None:
    budget = RetryBudget(20)
    served = 0
    while budget.allows(5.0):
        budget.admitted(5.0, retry=True)
        served += 1
    assert served == FLOOR
    assert budget.retries == FLOOR


def test_retries_of_earlier_seconds_no_longer_count() -> None:
    budget = RetryBudget(20)
    for _ in range(FLOOR):
        budget.admitted(5.9, retry=True)
    assert not budget.allows(5.9 + WINDOW_SECONDS - 1)
    assert budget.allows(6.0 + WINDOW_SECONDS)


def test_every_window_begins_anew() -> None:
    budget = RetryBudget(20)
    for now in (5.0, 16.0, 27.0, 38.0, 1000.0):
        for _ in range(FLOOR):
            assert budget.allows(now)
            budget.admitted(now, retry=True)
        assert not budget.allows(now)


@pytest.mark.parametrize(("percent", "served"), [(0, 0), (10, 11), (20, 25), (50, 100), (100, 1000)])
def test_retries_are_a_share_of_all_that_is_admitted(percent: int, served: int) -> None:
    budget = RetryBudget(percent)
    for _ in range(100):
        budget.admitted(1.0, retry=False)
    count = 0
    while count < 1000 and budget.allows(1.0):
        budget.admitted(1.0, retry=True)
        count += 1
    assert count == served


def test_a_storm_of_made_up_bodies_costs_bounded_memory_and_the_newest_are_known() -> None:
    budget = RetryBudget(20)
    marks = [number.to_bytes(16, "big") for number in range(MEMORY_LIMIT + 100)]
    for mark in marks:
        budget.unanswered(mark, 0.0)
    assert len(budget._unanswered) == MEMORY_LIMIT
    assert budget.is_retry(marks[-1], retry_count=0, now=1.0)
    assert not budget.is_retry(marks[0], retry_count=0, now=1.0)


@given(
    percent=st.integers(0, 100),
    steps=st.lists(st.tuples(st.sampled_from([0.0, 0.3, 1.0, 4.5, 30.0]), st.booleans()), max_size=120),
)
def test_in_no_window_are_retries_more_than_the_share_and_what_remains_is_true(
    percent: int, steps: list[tuple[float, bool]]
) -> None:
    budget, now = RetryBudget(percent), 0.0
    admitted: list[tuple[int, bool]] = []
    for pause, retry in steps:
        now += pause
        remaining = budget.remaining(now)
        allowed = budget.allows(now)
        assert allowed == (remaining > 0)
        if not retry or allowed:
            budget.admitted(now, retry=retry)
            admitted.append((int(now), retry))
        window = [is_retry for second, is_retry in admitted if second > int(now) - WINDOW_SECONDS]
        if retry and allowed:
            assert percent > 0
            assert sum(window) <= max(FLOOR, len(window) * percent / 100)
