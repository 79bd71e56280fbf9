from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.admission.leakybucket import LeakyBucket
from penstock.admission.meter import PASS, Allowance


def start(bucket, cost, now):
    check = bucket.check(cost, now)
    assert check.wait_seconds == 0
    bucket.charge(cost, now)
    return now + check.delay_seconds


def test_a_burst_is_spread_out_evenly():
    bucket = LeakyBucket(Allowance(limit=60, window_seconds=60), 0)
    assert [start(bucket, 1, 0) for _ in range(5)] == pytest.approx([0, 1, 2, 3, 4])


def test_a_dear_request_keeps_the_next_one_waiting_longer():
    bucket = LeakyBucket(Allowance(limit=60, window_seconds=60), 0)
    assert [start(bucket, cost, 0) for cost in (10, 1, 3, 1)] == pytest.approx([0, 10, 11, 14])


def test_the_backlog_is_bounded():
    bucket = LeakyBucket(Allowance(limit=60, window_seconds=60, burst=3), 0)
    assert [start(bucket, 1, 0) for _ in range(3)] == pytest.approx([0, 1, 2])
    assert bucket.check(1, 0).wait_seconds == pytest.approx(1, abs=1e-5)
    assert start(bucket, 1, 1.00001) == pytest.approx(3, abs=1e-4)


def test_without_a_backlog_a_request_starts_at_once():
    bucket = LeakyBucket(Allowance(limit=60, window_seconds=60), 0)
    start(bucket, 5, 0)
    assert bucket.check(1, 5) is PASS


def test_what_is_given_back_shortens_the_backlog_but_never_below_nothing():
    bucket = LeakyBucket(Allowance(limit=60, window_seconds=60), 0)
    start(bucket, 10, 0)
    bucket.refund(4, 0, charged_at=0)
    assert bucket.check(1, 0).delay_seconds == pytest.approx(6)
    bucket.refund(10, 0, charged_at=0)
    assert bucket.check(60, 0) is PASS


def test_what_waits_goes_on_waiting_at_the_new_pace():
    bucket = LeakyBucket(Allowance(limit=60, window_seconds=60), 0)
    start(bucket, 10, 0)
    bucket.reconfigure(Allowance(limit=120, window_seconds=60), 0)
    assert bucket.check(1, 0).delay_seconds == pytest.approx(5)
    bucket.reconfigure(Allowance(limit=120, window_seconds=240), 0)
    assert bucket.used(0) == 10
    assert bucket.check(1, 0).delay_seconds == pytest.approx(20)


@settings(derandomize=True)
@given(
    limit=st.integers(1, 50),
    burst=st.integers(1, 100),
    asks=st.lists(st.tuples(st.floats(0, 3), st.integers(1, 60)), max_size=60),
)
def test_two_starts_lie_the_time_apart_that_the_first_takes_and_no_delay_is_above_its_bound(limit, burst, asks):
    bucket = LeakyBucket(Allowance(limit=limit, window_seconds=10, burst=burst), 0)
    now, starts = 0.0, []
    for pause, cost in asks:
        now += pause
        check = bucket.check(cost, now)
        if check.wait_seconds == 0:
            assert check.delay_seconds <= burst * 10 / limit
            bucket.charge(cost, now)
            starts.append((now + check.delay_seconds, cost))
    for (first, cost), (second, _) in pairwise(starts):
        assert second - first >= cost * 10 / limit - 3e-6
