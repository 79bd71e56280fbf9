import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.admission.fixedwindow import FixedWindow
from penstock.admission.meter import Allowance

LIMIT = 20
WINDOW_SECONDS = 10


def window(limit=LIMIT):
    return FixedWindow(Allowance(limit=limit, window_seconds=WINDOW_SECONDS), 0)


def test_the_count_starts_anew_at_multiples_of_the_window():
    meter = window()
    meter.charge(20, 7)
    assert meter.remaining(9.999999) == 0
    assert meter.remaining(10) == 20


def test_around_an_edge_twice_the_limit_passes_and_no_more():
    meter = window()
    meter.charge(20, 9.9)
    assert meter.check(20, 10.0).wait_seconds == 0
    meter.charge(20, 10.0)
    assert meter.check(1, 19.9).wait_seconds > 0


@pytest.mark.parametrize(("now", "wait"), [(0, 10), (3.25, 6.75), (9.5, 0.5)])
def test_it_waits_for_the_end_of_the_window(now, wait):
    meter = window()
    meter.charge(20, now)
    assert meter.check(1, now).wait_seconds == pytest.approx(wait, abs=1e-5)


def test_debt_uses_up_the_windows_that_follow():
    meter = window()
    meter.charge(50, 0)
    assert [meter.remaining(now) for now in (0, 10, 20, 30)] == [0, 0, 10, 20]


def test_only_the_window_that_was_charged_gives_back():
    meter = window()
    meter.charge(15, 9)
    meter.charge(15, 11)
    meter.refund(10, 12, charged_at=9)
    assert meter.used(12) == 15
    meter.refund(10, 12, charged_at=11)
    assert meter.used(12) == 5


def test_what_is_above_a_lowered_limit_is_no_debt():
    meter = window()
    meter.charge(20, 5)
    meter.reconfigure(Allowance(limit=5, window_seconds=WINDOW_SECONDS), 5)
    assert meter.remaining(5) == 0
    assert meter.remaining(10) == 5


@settings(derandomize=True)
@given(asks=st.lists(st.tuples(st.floats(0, 4), st.integers(0, 20)), max_size=80))
def test_a_window_never_sees_more_than_the_limit_and_any_time_as_long_never_twice_as_much(asks):
    meter = window()
    now, passed = 0.0, []
    for pause, cost in asks:
        now += pause
        if meter.check(cost, now).wait_seconds == 0:
            meter.charge(cost, now)
            passed.append((now, cost))
    for begin, _ in passed:
        number = begin // WINDOW_SECONDS
        assert sum(cost for at, cost in passed if at // WINDOW_SECONDS == number) <= LIMIT
        assert sum(cost for at, cost in passed if begin <= at < begin + WINDOW_SECONDS) <= 2 * LIMIT
