"""How the limiter's bench comes from what it saw to its figures."""

from __future__ import annotations

import pytest

from bench.limiter.fairness import jain
from bench.limiter.limits import (
    CLIENTS,
    ERROR,
    PER_REQUEST,
    REQUESTS_PER_WINDOW,
    WINDOW_SECONDS,
    Tally,
    beyond,
    seconds_of,
)
from bench.limiter.soak import Watched, growth
from penstock.limiter.quotaheaders import duration


@pytest.mark.parametrize(("values", "index"), [([5.0, 5.0, 5.0], 1.0), ([1.0, 0.0, 0.0, 0.0], 0.25), ([2.0, 1.0], 0.9)])
def test_jains_index_says_how_equal_shares_are(values: list[float], index: float) -> None:
    assert jain(values) == pytest.approx(index)


@pytest.mark.parametrize("time", [0.0, 0.012, 1.5, 59.999, 60.0, 372.25, 3600.0, 7325.5])
def test_a_time_that_the_limiter_writes_is_read_as_it_is_meant(time: float) -> None:
    assert seconds_of(duration(time).decode()) == pytest.approx(time)


@pytest.mark.parametrize("unit", PER_REQUEST)
def test_a_quota_is_exceeded_by_one_request_more_than_two_windows_and_the_error_allow(unit: str) -> None:
    allowed = 2 * REQUESTS_PER_WINDOW + CLIENTS * ERROR[unit] // PER_REQUEST[unit]
    assert beyond(("TokenBucket", unit), Tally(passed=allowed, seconds=WINDOW_SECONDS)) <= 0
    assert beyond(("TokenBucket", unit), Tally(passed=allowed + 1, seconds=WINDOW_SECONDS)) > 0


def test_memory_that_grows_at_first_only_is_no_growth_and_one_that_goes_on_is() -> None:
    filled = Watched(memory=[(at, min(at, 40.0)) for at in range(100)])
    leaking = Watched(memory=[(at, float(at)) for at in range(100)])
    assert growth(filled) == 0
    assert growth(leaking) == pytest.approx(25, abs=1)
