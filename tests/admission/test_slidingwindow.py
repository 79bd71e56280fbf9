import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.admission.meter import Allowance
from penstock.admission.slidingwindow import SLICES, SlidingWindow, _Ring

LIMIT = 20
WINDOW_SECONDS = 10
SLICE_SECONDS = WINDOW_SECONDS / SLICES


def window(limit=LIMIT):
    return SlidingWindow(Allowance(limit=limit, window_seconds=WINDOW_SECONDS), 0)


def test_there_is_no_burst_at_an_edge():
    meter = window()
    meter.charge(20, 9.9)
    assert meter.check(1, 10.0).wait_seconds > 0
    assert meter.check(1, 19.89).wait_seconds > 0


def test_what_was_used_is_forgotten_a_window_later_and_at_most_one_slice_after():
    meter = window()
    meter.charge(20, 5)
    assert meter.remaining(5 + WINDOW_SECONDS - 1e-6) == 0
    assert meter.remaining(5 + WINDOW_SECONDS + SLICE_SECONDS) == 20


def test_it_is_forgotten_in_the_order_it_came():
    meter = window()
    for second in range(5):
        meter.charge(4, second)
    assert [meter.remaining(10.5 + second) for second in range(5)] == [4, 8, 12, 16, 20]


def test_debt_is_paid_from_what_is_forgotten():
    meter = window()
    meter.charge(10, 0)
    meter.charge(25, 5)
    assert meter.remaining(10.4) == 0
    assert meter.remaining(15.4) == 5
    assert meter.used(15.4) == 15


def test_only_the_slice_that_was_charged_gives_back():
    meter = window()
    meter.charge(10, 0)
    meter.charge(10, 5)
    meter.refund(10, 6, charged_at=5)
    assert meter.used(6) == 10
    assert meter.used(10.4) == 0


def test_what_is_forgotten_is_not_given_back():
    meter = window()
    same_place = (SLICES + 1) * SLICE_SECONDS
    meter.charge(10, 0)
    meter.charge(10, same_place)
    meter.refund(10, same_place, charged_at=0)
    assert meter.used(same_place) == 10


def test_what_costs_nothing_waits_for_the_debt_and_no_longer():
    meter = window()
    meter.charge(20, 0)
    meter.charge(20, 9)
    assert meter.check(0, 9).wait_seconds == pytest.approx((SLICES + 1) * SLICE_SECONDS - 9, abs=1e-5)


def test_debt_that_a_higher_limit_has_room_for_is_used_at_once():
    meter = window()
    meter.charge(30, 0)
    meter.reconfigure(Allowance(limit=100, window_seconds=WINDOW_SECONDS), 0)
    assert meter.used((SLICES + 1) * SLICE_SECONDS) == 0


def test_a_large_debt_under_a_limit_just_lowered_costs_no_work_to_look_past(monkeypatch):
    begun = []
    monkeypatch.setattr(_Ring, "begin_slice", lambda ring, begin=_Ring.begin_slice: (begun.append(1), begin(ring)))
    meter = window(limit=1_000_000)
    meter.charge(2_000_000, 1)
    meter.reconfigure(Allowance(limit=1, window_seconds=WINDOW_SECONDS), 1)
    assert meter.check(1, 1).wait_seconds > 1_000_000 * WINDOW_SECONDS / 2
    assert len(begun) < 10 * SLICES


def test_with_another_window_everything_counts_as_used_just_now():
    meter = window()
    meter.charge(10, 0)
    meter.reconfigure(Allowance(limit=LIMIT, window_seconds=60), 9)
    assert meter.used(68.9) == 10
    assert meter.used(71) == 0


def test_a_steady_stream_gets_almost_all_of_its_limit():
    meter = window(limit=3200)
    passed = 0
    for step in range(20_000):
        now = step * 0.01
        if meter.check(4, now).wait_seconds == 0:
            meter.charge(4, now)
            passed += 4
    assert passed >= 3200 * 20 * 0.96


def test_its_memory_does_not_grow():
    meter = window(limit=10**6)
    for step in range(5_000):
        meter.charge(1, step * 0.0371)
    assert len(meter._ring.counts) == SLICES + 1
    assert sum(meter._ring.counts) == meter._ring.used


asks = st.lists(st.tuples(st.floats(0, 4), st.integers(0, 20), st.integers(0, 20), st.floats(0, 15)), max_size=80)


@settings(derandomize=True)
@given(asks=asks)
def test_no_time_as_long_as_the_window_sees_more_than_the_limit(asks):
    """What is refunded was not used, and is refunded at any later time."""
    meter = window()
    now, passed, refunds = 0.0, [], []
    for pause, cost, unused, later in asks:
        now += pause
        for due in [due for due in refunds if due[0] <= now]:
            refunds.remove(due)
            meter.refund(due[2], now, charged_at=due[1])
        if meter.check(cost, now).wait_seconds == 0:
            meter.charge(cost, now)
            passed.append((now, cost - min(cost, unused)))
            refunds.append((now + later, now, min(cost, unused)))
    for begin, _ in passed:
        assert sum(cost for at, cost in passed if begin <= at < begin + WINDOW_SECONDS) <= LIMIT


@pytest.mark.parametrize("window_seconds", [1, 7, 59, 86_400])
def test_slices_add_up_to_the_window_exactly(window_seconds):
    assert Allowance(limit=1, window_seconds=window_seconds).window_ticks % SLICES == 0
