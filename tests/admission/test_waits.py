"""How long a request would wait."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admission.waits import HALF_LIFE_SECONDS, Rate, Waits


def running_rate(start=0.0):
    rate = Rate()
    rate.run(start, running=True)
    return rate


def feed(rate, *, every, times, start=0.0, amount=1.0):
    """Take samples at a steady pace and return the time of the last."""
    for number in range(1, times + 1):
        rate.add(amount, start + number * every)
    return start + times * every


@pytest.mark.parametrize("pace", [0.01, 1.0, 60.0], ids=lambda pace: f"every-{pace}s")
def test_a_steady_pace_is_found_whatever_it_is(pace):
    rate = running_rate()
    end = feed(rate, every=pace, times=200)
    assert rate.per_second(end) == pytest.approx(1 / pace)


def test_a_batch_that_ends_in_one_moment_counts_over_the_time_it_took():
    rate = running_rate()
    for minute in range(1, 6):
        for _ in range(4):
            rate.add(1, minute * 60.0)
    assert rate.per_second(300.0) == pytest.approx(4 / 60)


def test_half_of_the_estimate_is_from_the_last_half_life():
    rate = running_rate()
    end = feed(rate, every=0.1, times=3000)
    end = feed(rate, every=0.1, times=int(HALF_LIFE_SECONDS / 0.1), start=end, amount=3.0)
    assert rate.per_second(end) == pytest.approx((10 + 30) / 2, rel=0.01)


def test_it_is_unknown_until_there_is_enough_to_tell_it_from():
    rate = running_rate()
    assert rate.per_second(0.0) is None
    assert rate.per_second(feed(rate, every=0.1, times=5)) is None  # less than a second
    slow = running_rate()
    assert slow.per_second(feed(slow, every=10.0, times=4)) is None  # too few
    assert slow.per_second(feed(slow, every=10.0, times=1, start=40.0)) == pytest.approx(0.1)


def test_a_long_silence_lowers_it():
    rate = running_rate()
    end = feed(rate, every=0.1, times=1000)
    assert rate.per_second(end + 100.0) < 2.0


def test_time_in_which_its_clock_stands_does_not_count():
    rate = running_rate()
    end = feed(rate, every=0.5, times=20)
    rate.run(end, running=False)
    rate.add(1000, end + 30.0)
    rate.run(end + 3600.0, running=True)
    assert rate.per_second(end + 3600.0) == pytest.approx(2.0)
    rate.add(1, end + 3600.5)
    assert rate.per_second(end + 3600.5) == pytest.approx(2.0)


def test_a_stop_loses_none_of_the_time_before_it():
    rate = running_rate()
    end = feed(rate, every=0.5, times=20)
    rate.run(end + 0.3, running=False)
    rate.run(end + 50.0, running=True)
    rate.add(1, end + 50.2)
    assert rate.per_second(end + 50.2) == pytest.approx(2.0)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 1e6), st.booleans()), max_size=50))
def test_it_is_never_negative_and_never_infinite(steps):
    rate, now = running_rate(), 0.0
    for seconds, amount, running in steps:
        now += seconds
        rate.run(now, running=running)
        rate.add(amount, now)
        known = rate.per_second(now)
        assert known is None or 0 < known < float("inf")


def known_waits():
    """Return rates of 10 requests and 100 tokens per second, as of second 100."""
    waits = Waits()
    waits.watch(0.0, waiting=True, prefilling=True)
    feed(waits.completions, every=0.1, times=1000)
    feed(waits.prefill, every=0.1, times=1000, amount=10)
    return waits


@pytest.mark.parametrize(
    ("position", "tokens", "seconds"),
    [(20, 0, 2.0), (20, 1000, 10.0), (200, 1000, 20.0), (0, 0, 0.0)],
    ids=["places", "prompts are slower", "places are slower", "nothing ahead"],
)
def test_the_slower_of_places_and_prompts_decides(position, tokens, seconds):
    assert known_waits().predicted_seconds(position, tokens, 100.0) == pytest.approx(seconds)


def test_nothing_is_predicted_from_nothing():
    waits = Waits()
    assert waits.predicted_seconds(1000, 10**6, 0.0) is None
    assert waits.prefill_seconds(10**6, 0.0) == 0.0


def test_one_known_rate_is_enough():
    waits = Waits()
    waits.watch(0.0, waiting=True, prefilling=False)
    end = feed(waits.completions, every=0.1, times=100)
    assert waits.predicted_seconds(30, 10**6, end) == pytest.approx(3.0)


def test_an_own_prompt_takes_its_time():
    assert known_waits().prefill_seconds(500, 100.0) == pytest.approx(5.0)
