"""The law of the admission rate: what each rule does, and what holds whatever is seen."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.admission import Targets
from penstock.api.engine import EngineType
from penstock.fleet.law import FLOOR_PER_REPLICA, LARGEST_CHANGE, Rate, Rule, Sight, decide
from penstock.fleet.pressure import Pressure, pressure_of
from penstock.fleet.signals import HeldBy, ReplicaSignals, Signal


def sight(*ratios, admitted=10.0, adaptive=True, age=1.0):
    pressures = [None if one is None else Pressure(one, "waiting", 2 * one, age) for one in ratios]
    return Sight(pressures=pressures, admitted_per_second=admitted, adaptive=adaptive, elapsed_seconds=15.0)


def rounds(rate, *sights):
    verdicts = []
    for one in sights:
        verdicts.append(decide(rate, one))
        rate = verdicts[-1].rate
    return verdicts


CALM = sight(0.1)
BINDING = Rate(per_second=5.0, before=12.5, seen=10.0)


def test_without_pressure_the_rate_follows_what_is_admitted_and_binds_nobody():
    verdict = decide(Rate(), CALM)
    assert (verdict.rule, verdict.rate.per_second, verdict.rate.binds) == (Rule.TRACKING, 12.5, False)


@pytest.mark.parametrize(
    ("ratio", "rule", "expected"), [(1.5, Rule.OVERLOAD, 9.0), (5.0, Rule.SEVERE, 8.75)], ids=["overload", "severe"]
)
def test_two_rounds_of_pressure_lower_the_rate_by_a_tenth_and_more(ratio, rule, expected):
    _, first, second = rounds(Rate(), CALM, sight(ratio), sight(ratio))
    assert (first.rule, first.rate.binds) == (Rule.TRACKING, False)
    assert (second.rule, second.rate.binds) == (rule, True)
    assert second.rate.per_second == pytest.approx(expected)
    assert second.rate.per_second <= 0.9 * 12.5


def test_one_round_of_pressure_changes_nothing():
    verdicts = rounds(Rate(), CALM, sight(5.0), CALM, sight(5.0), CALM)
    assert {one.rule for one in verdicts} == {Rule.TRACKING}


@pytest.mark.parametrize(
    ("ratios", "cuts"),
    [((1.5, 0.1), True), ((1.5, 0.1, 0.1), False), ((1.5, 1.5, 0.1), True), ((1.5, None), True)],
    ids=["half", "a third", "two thirds", "half, and the other unknown"],
)
def test_pressure_counts_when_half_of_the_replicas_have_it(ratios, cuts):
    assert rounds(Rate(), sight(*ratios), sight(*ratios))[-1].rate.binds is cuts


def test_after_a_cut_the_two_rounds_begin_anew():
    rules = [one.rule for one in rounds(Rate(), *[sight(1.5)] * 5)]
    assert rules == [Rule.TRACKING, Rule.OVERLOAD, Rule.HOLD, Rule.OVERLOAD, Rule.HOLD]


@pytest.mark.parametrize(("age", "cuts"), [(1.0, 2), (29.0, 2), (30.0, 1), (100.0, 1)])
def test_pressure_from_before_a_cut_is_no_reason_for_the_next(age, cuts):
    verdicts = rounds(Rate(), CALM, *[sight(1.5)] * 2, CALM, *[sight(1.5, age=age)] * 2)
    assert [one.rule for one in verdicts].count(Rule.OVERLOAD) == cuts


def test_a_round_that_sees_only_old_pressure_neither_counts_nor_begins_anew():
    cut = rounds(Rate(), CALM, *[sight(1.5)] * 2)
    rules = [one.rule for one in rounds(cut[-1].rate, sight(1.5), sight(1.5, age=100.0), sight(1.5))]
    assert rules == [Rule.HOLD, Rule.HOLD, Rule.OVERLOAD]


@pytest.mark.parametrize(("replicas", "per_second"), [(1, 2.5), (2, 5.0), (4, 10.0)])
def test_the_rate_follows_the_number_of_replicas(replicas, per_second):
    rate = rounds(BINDING, sight(0.9, 0.9))[-1].rate
    gone = rounds(rate, sight())[-1].rate
    after = decide(gone, sight(*[0.9] * replicas)).rate
    assert (after.per_second, after.before) == (per_second, 2.5 * per_second)
    assert after.per_replica == rate.per_replica == 2.5


def test_when_replicas_have_come_it_takes_no_longer_to_be_free():
    rate = Rate(per_second=2.0, before=2.5, seen=2.0, replicas=1)
    assert Rule.RECOVERED in [one.rule for one in rounds(rate, *[sight(0.1, 0.1, 0.1, 0.1)] * 5)]


def test_the_rate_returns_to_where_it_was_and_then_binds_no_more():
    rate = rounds(Rate(), CALM, *[sight(1.5)] * 6)[-1].rate
    verdicts = rounds(rate, *[sight(0.2, admitted=rate.per_second)] * 30)
    rules = [one.rule for one in verdicts]
    end = rules.index(Rule.RECOVERED)
    assert set(rules[:end]) == {Rule.RECOVERY}
    assert set(rules[end + 1 :]) == {Rule.TRACKING}
    assert not verdicts[-1].rate.binds


def test_between_calm_and_full_a_rate_that_binds_stays():
    verdict = decide(BINDING, sight(0.9))
    assert (verdict.rule, verdict.rate.per_second) == (Rule.HOLD, 5.0)


def test_nothing_grows_while_one_replica_is_unknown():
    assert decide(BINDING, sight(0.1, None)).rule is Rule.HOLD


def test_without_signals_the_rate_is_held_then_decays_to_the_floor():
    verdicts = rounds(BINDING, *[sight(None)] * 150)
    assert [one.rule for one in verdicts[:12]] == [Rule.MISSING] * 3 + [Rule.FROZEN] * 7 + [Rule.DECAY] * 2
    assert verdicts[9].rate.per_second == 5.0
    assert verdicts[10].rate.per_second == pytest.approx(4.75)
    assert verdicts[-1].rate.per_second == pytest.approx(FLOOR_PER_REPLICA)


def test_a_rate_that_does_not_bind_never_decays():
    assert rounds(decide(Rate(), CALM).rate, *[sight(None)] * 50)[-1].rate.per_second == 12.5


def test_fixed_limits_are_bound_by_no_rate():
    verdict = decide(BINDING, sight(5.0, adaptive=False))
    assert (verdict.rule, verdict.rate.binds) == (Rule.FIXED, False)


RATIOS = st.one_of(st.none(), st.floats(0, 50))
SIGHTS = st.builds(
    lambda ratios, admitted: sight(*ratios, admitted=admitted),
    st.lists(RATIOS, max_size=5),
    st.one_of(st.none(), st.floats(0, 1000)),
)


@given(st.lists(SIGHTS, max_size=60))
def test_whatever_is_seen_the_rate_is_never_0_and_changes_by_bounded_steps(sights):
    rate = Rate()
    for one in sights:
        after = decide(rate, one).rate
        if after.binds:
            floor = FLOOR_PER_REPLICA * max(1, len(one.pressures))
            assert after.per_second > 0
            if rate.binds:
                part = len(one.pressures) / rate.replicas if one.pressures else 1.0
                rate = replace(rate, per_second=part * rate.per_second)
                least = (1 - LARGEST_CHANGE) * rate.per_second
                most = max(1.3 * rate.per_second, floor)
                assert least - 1e-9 <= after.per_second <= most + 1e-9
                if any(pressure is None for pressure in one.pressures):
                    assert after.per_second <= max(rate.per_second, floor) + 1e-9
        rate = after


@given(st.lists(SIGHTS, max_size=40))
def test_whatever_was_seen_calm_frees_the_rate_in_the_end(sights):
    rate = Rate()
    for one in sights:
        rate = decide(rate, one).rate
    for _ in range(400):
        rate = decide(rate, sight(0.1, admitted=1.0)).rate
    assert not rate.binds


def signals(**values):
    held_by = values.pop("held_by", None)
    return ReplicaSignals(held_by=held_by, **{name: Signal(value, 1.0) for name, value in values.items()})


@pytest.mark.parametrize(
    ("found", "targets", "engine", "expected"),
    [
        (signals(waiting=10), Targets(), EngineType.VLLM, ("waiting", 5.0)),
        (signals(waiting=10), Targets(waiting_requests=20), EngineType.VLLM, ("waiting", 0.5)),
        (signals(waiting=0, kv_cache_percent=95), Targets(), EngineType.VLLM, ("kvCachePercent", 95 / 85)),
        (signals(kv_cache_percent=95), Targets(kv_cache_percent=99), EngineType.VLLM, ("kvCachePercent", 95 / 99)),
        (signals(queue_wait_ratio=1.2, held_by=HeldBy.LIMIT), Targets(), EngineType.VLLM, ("queueWait", 1.2)),
        (signals(queue_wait_ratio=1.2, waiting=1, held_by=HeldBy.RATE), Targets(), EngineType.VLLM, ("waiting", 0.5)),
        (signals(queue_wait_ratio=2.5, running=4, limit=4), Targets(), EngineType.LLAMA_CPP, ("slots", 1.0)),
        (
            signals(queue_wait_ratio=2.5, running=4, limit=4, held_by=HeldBy.LIMIT),
            Targets(),
            EngineType.LLAMA_CPP,
            ("queueWait", 2.5),
        ),
        (signals(first_token_milliseconds=900, waiting=1), Targets(), EngineType.VLLM, ("waiting", 0.5)),
        (
            signals(first_token_milliseconds=900, waiting=1, held_by=HeldBy.RATE),
            Targets(time_to_first_token_milliseconds=500),
            EngineType.VLLM,
            ("firstToken", 1.8),
        ),
        (signals(running=9, limit=4), Targets(), EngineType.LLAMA_CPP, ("slots", 1.0)),
        (signals(running=1, limit=4), Targets(), EngineType.LLAMA_CPP, ("slots", 0.25)),
    ],
    ids=[
        "waiting",
        "other target",
        "KV",
        "KV with another target",
        "own queue",
        "held by R",
        "a queue that nobody knows who holds",
        "slots full and a long queue",
        "first tokens without a target",
        "first tokens",
        "slots full",
        "slots",
    ],
)
def test_pressure_is_the_largest_of_what_is_known(found, targets, engine, expected):
    pressure = pressure_of(found, targets, engine)
    assert (pressure.signal, pressure.ratio) == (expected[0], pytest.approx(expected[1]))


def test_of_nothing_known_follows_no_pressure():
    assert pressure_of(ReplicaSignals(), Targets(), EngineType.VLLM) is None
