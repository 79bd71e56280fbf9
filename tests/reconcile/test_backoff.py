"""Failing backends wait longer and longer, apart from each other, and start afresh after a success."""

import pytest

from penstock.reconcile.backoff import FIRST_DELAY_SECONDS, JITTER, LONGEST_DELAY_SECONDS, Backoff


def middle() -> float:
    return 0.5


def test_delays_double_from_half_a_second_to_five_minutes():
    backoff = Backoff(random=middle)
    delays = [backoff.failed("a") for _ in range(12)]
    assert delays == [0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


def test_a_thousand_failures_do_not_overflow():
    backoff = Backoff(random=middle)
    for _ in range(2000):
        delay = backoff.failed("a")
    assert delay == LONGEST_DELAY_SECONDS
    assert backoff.failures("a") == 2000


@pytest.mark.parametrize(
    ("random", "share"), [(0.0, 1 - JITTER), (0.5, 1.0), (1.0, 1 + JITTER)], ids=["lowest", "middle", "highest"]
)
def test_jitter_spreads_the_delay(random, share):
    assert Backoff(random=lambda: random).failed("a") == pytest.approx(FIRST_DELAY_SECONDS * share)


def test_success_starts_over():
    backoff = Backoff(random=middle)
    backoff.failed("a")
    backoff.failed("a")
    backoff.reset("a")
    assert backoff.failed("a") == FIRST_DELAY_SECONDS


def test_after_a_success_the_same_steps_count_as_further_again():
    backoff = Backoff(random=middle)
    for _ in range(3):
        backoff.failed("a", reached=5)
    backoff.reset("a")
    backoff.failed("a")
    assert backoff.failed("a", reached=5) == FIRST_DELAY_SECONDS


def test_keys_do_not_share_their_failures():
    backoff = Backoff(random=middle)
    backoff.failed("a")
    backoff.failed("a")
    assert backoff.failed("b") == FIRST_DELAY_SECONDS
