"""What holds for every rate algorithm; what differs is in the test of each."""

from dataclasses import replace
from itertools import pairwise
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.admission.account import METERS
from penstock.admission.leakybucket import LeakyBucket
from penstock.admission.meter import PASS, Allowance
from penstock.admission.tokenbucket import TokenBucket
from penstock.api.ratelimits import QuotaAlgorithm

ALGORITHMS = pytest.mark.parametrize("make", METERS.values(), ids=[str(name) for name in METERS])
WINDOWS = pytest.mark.parametrize(
    "make",
    [METERS[QuotaAlgorithm.FIXED_WINDOW], METERS[QuotaAlgorithm.SLIDING_WINDOW]],
    ids=["FixedWindow", "SlidingWindow"],
)

START = 1234.567
MICROSECOND = 1e-6

shares = st.sampled_from((1.0, 0.5, 1 / 3, 0.01))
allowances = st.builds(
    Allowance,
    limit=st.integers(1, 200),
    window_seconds=st.sampled_from((1, 7, 60)),
    burst=st.none() | st.integers(1, 400),
    share=shares,
)
pauses = st.one_of(st.just(0.0), st.floats(0, 3), st.floats(0, 5000))
operations = st.lists(
    st.tuples(pauses, st.sampled_from(("admit", "settle", "refund")), st.integers(0, 500)), min_size=1, max_size=25
)


def fit(make, allowance):
    """Return the allowance as a policy may state it: only buckets have a burst."""
    return allowance if make in (TokenBucket, LeakyBucket) else replace(allowance, burst=None)


class Driven:
    """A meter with the moments of what it let pass."""

    def __init__(self, make, allowance):
        allowance = fit(make, allowance)
        self.meter = make(allowance, START)
        self.now = START
        self.charges = []

    def run(self, steps, each=lambda meter, now: None):
        for pause, kind, amount in steps:
            self.now += pause
            each(self.meter, self.now)
            if kind == "admit":
                if self.meter.check(amount, self.now).wait_seconds == 0:
                    self.meter.charge(amount, self.now)
                    self.charges.append([self.now, amount])
            elif kind == "settle":
                self.meter.charge(amount, self.now)
            elif self.charges:
                charge = self.charges[amount % len(self.charges)]
                self.meter.refund(min(amount, charge[1]), self.now, charged_at=charge[0])
                charge[1] -= min(amount, charge[1])
        return self


def seen(meter, now):
    probes = (0, 1, 2, 10, 100, 300)
    return (
        meter.used(now),
        meter.remaining(now),
        meter.reset_seconds(now),
        [meter.check(cost, now) for cost in probes],
    )


@ALGORITHMS
def test_a_new_meter_lets_everything_pass_at_once(make):
    meter = make(Allowance(limit=10, window_seconds=60), START)
    assert meter.remaining(START) == 10
    assert meter.used(START) == 0
    assert meter.reset_seconds(START) == 0
    assert meter.check(10, START) is PASS
    assert meter.check(11, START).wait_seconds == inf


@ALGORITHMS
def test_what_is_used_up_comes_back(make):
    meter = make(Allowance(limit=10, window_seconds=60), START)
    meter.charge(10, START)
    assert meter.remaining(START) == 0
    assert meter.used(START) == 10
    wait = meter.check(1, START).wait_seconds
    assert 0 < wait <= 60 + 60 / 32
    assert meter.check(1, START + wait).wait_seconds == 0


@ALGORITHMS
@settings(derandomize=True)
@given(allowance=allowances, steps=operations, cost=st.integers(0, 400))
def test_the_wait_it_tells_is_long_enough_and_no_longer(make, allowance, steps, cost):
    allowance = fit(make, allowance)
    driven = Driven(make, allowance).run(steps)
    meter, now = driven.meter, driven.now
    wait = meter.check(cost, now).wait_seconds
    if wait == inf:
        assert cost > allowance.largest
    elif wait > 0:
        early = now + wait - 3 * MICROSECOND
        if early > now:
            assert meter.check(cost, early).wait_seconds > 0
        assert meter.check(cost, now + wait).wait_seconds == 0


@ALGORITHMS
@settings(derandomize=True)
@given(allowance=allowances, steps=operations)
def test_asking_changes_nothing_however_often_and_refused_requests_cost_nothing(make, allowance, steps):
    quiet = Driven(make, allowance).run(steps)
    asked = Driven(make, allowance).run(steps, each=seen)
    assert seen(quiet.meter, quiet.now) == seen(asked.meter, asked.now)


@ALGORITHMS
@settings(derandomize=True)
@given(allowance=allowances, steps=operations, cost=st.integers(0, 500))
def test_a_charge_given_back_at_once_leaves_no_trace(make, allowance, steps, cost):
    allowance = fit(make, allowance)
    driven = Driven(make, allowance).run(steps)
    before = seen(driven.meter, driven.now)
    driven.meter.charge(cost, driven.now)
    driven.meter.refund(cost, driven.now, charged_at=driven.now)
    assert seen(driven.meter, driven.now) == before


@ALGORITHMS
@settings(derandomize=True)
@given(allowance=allowances, steps=operations)
def test_numbers_stay_within_their_bounds(make, allowance, steps):
    allowance = fit(make, allowance)

    def look(meter, now):
        assert 0 <= meter.remaining(now) <= max(1, allowance.largest)
        assert meter.used(now) >= 0
        assert meter.reset_seconds(now) >= 0
        assert (meter.reset_seconds(now) == 0) == (meter.used(now) == 0)

    Driven(make, allowance).run(steps, each=look)


@ALGORITHMS
@settings(derandomize=True)
@given(allowance=allowances, steps=operations)
def test_everything_is_back_after_the_reset_it_tells(make, allowance, steps):
    allowance = fit(make, allowance)
    driven = Driven(make, allowance).run(steps)
    later = driven.now + driven.meter.reset_seconds(driven.now)
    assert driven.meter.used(later) == 0
    assert driven.meter.check(allowance.largest, later) is PASS


@ALGORITHMS
@settings(derandomize=True)
@given(
    allowance=allowances,
    calls=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 20), st.booleans()), min_size=1, max_size=40),
)
def test_a_client_that_keeps_to_what_it_was_told_is_never_refused(make, allowance, calls):
    allowance = fit(make, allowance)
    meter = make(allowance, START)
    now, told, reset = START, allowance.shown, 0.0
    for part, pause, waits_for_reset in calls:
        if waits_for_reset:
            now, told = now + reset, allowance.shown
        now += pause
        cost = round(part * told)
        if cost == 0:
            continue
        assert meter.check(cost, now).wait_seconds == 0
        meter.charge(cost, now)
        told, reset = min(allowance.shown, meter.remaining(now)), meter.reset_seconds(now)


@ALGORITHMS
def test_debt_is_paid_before_anything_passes(make):
    meter = make(Allowance(limit=60, window_seconds=60), START)
    meter.charge(60, START)
    meter.charge(120, START)
    assert meter.used(START) == 180
    assert meter.remaining(START) == 0
    reset = meter.reset_seconds(START)
    assert 120 < reset <= 180 + 3 * 60 / 32 + 2 * MICROSECOND
    assert meter.check(0, START).wait_seconds > 0
    assert meter.check(1, START + 80).wait_seconds > 0
    assert meter.check(60, START + reset).wait_seconds == 0


@ALGORITHMS
def test_years_of_debt_cost_no_work_to_look_past(make):
    allowance = Allowance(limit=1, window_seconds=1)
    meter = make(allowance, START)
    meter.charge(10**12, START)
    assert meter.reset_seconds(START) >= 10**12 - 1
    assert meter.used(START + 10**9) >= 9 * 10**11
    assert meter.check(1, START + 2 * 10**12).wait_seconds == 0


@ALGORITHMS
def test_a_clock_that_steps_back_stands_still(make):
    meter = make(Allowance(limit=10, window_seconds=60), START)
    meter.charge(10, START)
    before = seen(meter, START)
    assert seen(meter, START - 1000) == before
    assert seen(meter, START) == before


@ALGORITHMS
@settings(derandomize=True)
@given(allowance=allowances, steps=operations)
def test_the_same_configuration_again_changes_nothing(make, allowance, steps):
    allowance = fit(make, allowance)
    driven = Driven(make, allowance).run(steps)
    before = seen(driven.meter, driven.now)
    driven.meter.reconfigure(allowance, driven.now)
    assert seen(driven.meter, driven.now) == before


@ALGORITHMS
@settings(derandomize=True)
@given(allowance=allowances, steps=operations, others=st.lists(allowances, min_size=1, max_size=4))
def test_no_way_through_other_configurations_gives_tokens(make, allowance, steps, others):
    allowance = fit(make, allowance)
    driven = Driven(make, allowance).run(steps)
    meter, now = driven.meter, driven.now
    if meter.used(now) == 0:
        return
    before = meter.remaining(now)
    for other in (*others, allowance):
        meter.reconfigure(fit(make, other), now)
    full_again = meter.used(now) == 0
    assert meter.remaining(now) <= max(before, 1 if full_again else 0)


@ALGORITHMS
def test_a_higher_limit_does_not_forget_what_is_used(make):
    meter = make(Allowance(limit=10, window_seconds=60), START)
    meter.charge(10, START)
    meter.reconfigure(Allowance(limit=100, window_seconds=60), START)
    assert meter.used(START) >= 10
    assert meter.remaining(START) <= 90


@ALGORITHMS
def test_a_lower_limit_holds_at_once(make):
    meter = make(Allowance(limit=100, window_seconds=60), START)
    meter.charge(50, START)
    meter.reconfigure(Allowance(limit=10, window_seconds=60), START)
    assert meter.remaining(START) <= 10
    assert meter.check(11, START).wait_seconds == inf


@WINDOWS
@settings(derandomize=True)
@given(allowance=allowances, steps=operations, other=allowances)
def test_a_window_keeps_its_count_whatever_is_configured(make, allowance, steps, other):
    allowance = fit(make, allowance)
    driven = Driven(make, allowance).run(steps)
    before = driven.meter.used(driven.now)
    driven.meter.reconfigure(fit(make, other), driven.now)
    assert driven.meter.used(driven.now) == before


@ALGORITHMS
def test_what_only_the_whole_limit_has_room_for_passes_alone_and_leaves_debt(make):
    quarter = Allowance(limit=100, window_seconds=60, share=0.25)
    meter = make(quarter, START)
    assert meter.check(100, START) is PASS
    assert meter.check(101, START).wait_seconds == inf
    meter.charge(100, START)
    wait = meter.check(100, START).wait_seconds
    assert 180 < wait <= 240 + 5 * 60 / 32
    assert meter.check(100, START + wait).wait_seconds == 0


@ALGORITHMS
def test_one_is_left_where_nothing_is_used_however_small_the_share(make):
    meter = make(Allowance(limit=1, window_seconds=60, share=0.001), START)
    assert meter.remaining(START) == 1
    meter.charge(1, START)
    assert meter.remaining(START) == 0


@ALGORITHMS
@pytest.mark.parametrize("replicas", [3, 7])
def test_replicas_together_keep_a_limit_smaller_than_their_number(make, replicas):
    limit, windows = 2, 84
    meters = [make(Allowance(limit=limit, window_seconds=10, share=1 / replicas), START) for _ in range(replicas)]
    passed = 0
    for second in range(windows * 10):
        for meter in meters:
            if meter.check(1, START + second).wait_seconds == 0:
                meter.charge(1, START + second)
                passed += 1
    assert passed <= limit * windows + replicas
    assert passed >= 0.7 * limit * windows


@ALGORITHMS
def test_a_month_of_questions_leaves_it_exact(make):
    allowance = fit(make, Allowance(limit=7, window_seconds=86_400, burst=10**9))
    asked, quiet = make(allowance, START), make(allowance, START)
    for meter in (asked, quiet):
        meter.charge(5_000, START)
    for step in range(20_000):
        asked.remaining(START + step * 129.6173)
    end = START + 20_000 * 129.6173
    assert seen(asked, end) == seen(quiet, end)


@ALGORITHMS
@settings(derandomize=True)
@given(
    allowance=st.builds(Allowance, limit=st.integers(5, 50), window_seconds=st.just(10), share=shares),
    requests=st.lists(st.tuples(st.floats(0, 5), st.integers(1, 5), st.integers(0, 40)), max_size=60),
)
def test_the_average_holds_though_requests_use_more_than_was_reserved(make, allowance, requests):
    """Each request is settled before the next comes: what was used beyond the estimate is the last one's alone."""
    meter = make(allowance, START)
    now, used, most_beyond = START, 0, 0
    for pause, estimate, beyond in requests:
        now += pause
        if meter.check(estimate, now).wait_seconds == 0:
            meter.charge(estimate, now)
            meter.charge(beyond, now)
            used += estimate + beyond
            most_beyond = max(most_beyond, beyond)
        windows = (now - START) / allowance.window_seconds + 1
        yielded = allowance.limit * allowance.share * (windows + 1)
        assert used <= yielded + allowance.limit + most_beyond + 1


@pytest.mark.parametrize("share", [-0.1, 1.1, inf])
def test_a_share_out_of_its_bounds_is_an_error(share):
    with pytest.raises(ValueError, match="between 0 and 1"):
        Allowance(limit=1, window_seconds=1, share=share)


@ALGORITHMS
def test_without_a_share_next_to_nothing_passes_and_nothing_breaks(make):
    meter = make(Allowance(limit=10, window_seconds=1, share=0.0), START)
    meter.charge(1, START)
    waits = [meter.check(1, START + second).wait_seconds for second in (0, 10, 1000)]
    assert all(0 < wait < inf for wait in waits)
    assert all(later < earlier for earlier, later in pairwise(waits))
