from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.admission.meter import PASS, Allowance
from penstock.admission.tokenbucket import TokenBucket


def test_tokens_come_back_evenly():
    bucket = TokenBucket(Allowance(limit=60, window_seconds=60), 0)
    bucket.charge(60, 0)
    assert [bucket.remaining(second) for second in (0, 0.999999, 1, 30.5, 60, 1000)] == [0, 0, 1, 30, 60, 60]


@pytest.mark.parametrize(("burst", "at_once"), [(None, 60), (5, 5), (200, 200)])
def test_as_much_as_the_burst_passes_at_once(burst, at_once):
    bucket = TokenBucket(Allowance(limit=60, window_seconds=60, burst=burst), 0)
    assert bucket.check(at_once, 0) is PASS
    bucket.charge(at_once, 0)
    assert bucket.check(1, 0).wait_seconds == pytest.approx(1, abs=1e-5)


def test_the_level_is_never_above_the_burst():
    bucket = TokenBucket(Allowance(limit=10, window_seconds=1, burst=20), 0)
    bucket.charge(5, 0)
    assert bucket.remaining(1e6) == 20
    bucket.refund(5, 1e6, charged_at=0)
    assert bucket.remaining(1e6) == 20


def test_a_lower_burst_takes_the_rest_away_and_a_higher_one_does_not_fill():
    bucket = TokenBucket(Allowance(limit=10, window_seconds=10, burst=100), 0)
    bucket.reconfigure(Allowance(limit=10, window_seconds=10, burst=5), 0)
    bucket.reconfigure(Allowance(limit=10, window_seconds=10, burst=100), 0)
    assert bucket.remaining(0) == 5
    assert bucket.remaining(1) == 6


@pytest.mark.parametrize("window_seconds", [1, 60, 86400])
def test_tokens_stay_when_the_window_changes(window_seconds):
    bucket = TokenBucket(Allowance(limit=100, window_seconds=10), 0)
    bucket.charge(30, 0)
    bucket.reconfigure(Allowance(limit=100, window_seconds=window_seconds), 0)
    assert bucket.remaining(0) == 70


@settings(derandomize=True)
@given(
    limit=st.integers(1, 50),
    burst=st.integers(1, 100),
    share=st.sampled_from((1.0, 0.5)),
    asks=st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(0, 60)), max_size=60),
)
def test_no_time_sees_more_than_the_burst_and_what_it_yields(limit, burst, share, asks):
    bucket = TokenBucket(Allowance(limit=limit, window_seconds=10, burst=burst, share=share), 0)
    part = Fraction(share)
    ticks, passed = 0, []
    for pause, cost in asks:
        ticks += pause
        now = (ticks + 0.5) / 1e6
        if bucket.check(cost, now).wait_seconds == 0:
            bucket.charge(cost, now)
            passed.append((ticks, cost))
    for first, (begin, _) in enumerate(passed):
        total = 0
        for end, cost in passed[first:]:
            total += cost
            alone = max(burst * part, cost if cost > burst * part else 0)
            assert total <= alone + Fraction(limit, 10_000_000) * part * (end - begin)
