"""What status tells of the limits: what has changed by much, and not running numbers."""

from dataclasses import replace

import pytest

from penstock.api.conditions import ConditionStatus, Reason
from penstock.api.status import SignalOrigin
from penstock.fleet.law import Rate, Rule
from penstock.fleet.target import FleetView
from penstock.status.admission import admission_due_seconds, admission_status, signals_fresh
from penstock.status.assess import Observation, assess

FREE = FleetView(
    rate=Rate(per_second=12.5),
    rule=Rule.TRACKING,
    limited_by=Rule.TRACKING,
    pressure=None,
    origin=SignalOrigin.DIRECT,
    limit_per_replica=8,
    prometheus="",
    answers=True,
    reached=2,
    ready=2,
    ages={},
)
BOUND = replace(FREE, rate=Rate(per_second=10.0, before=12.5), rule=Rule.OVERLOAD, limited_by=Rule.OVERLOAD)


def at(seconds):
    return f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02}Z"


def told(view, before=None, *, seconds=0):
    return admission_status(view, {"admission": before} if before else {}, now=at(seconds))


def bound(per_second, **changes):
    return replace(BOUND, rate=Rate(per_second=per_second, before=12.5), **changes)


def test_without_a_bound_there_is_no_rate():
    assert told(FREE) == {
        "limitPerReplica": 8, "source": "Direct", "limitedBy": "tracking", "lastChangeTime": at(0),
    }  # fmt: skip


def test_a_rate_that_binds_is_told_per_minute_and_never_as_0():
    assert told(BOUND)["ratePerMinute"] == 600
    assert told(bound(0.001))["ratePerMinute"] == 1


@pytest.mark.parametrize(
    ("view", "seconds", "is_written"),
    [
        (BOUND, 600, False),
        (bound(9.2), 600, False),
        (bound(8.0), 59, False),
        (bound(8.0), 60, True),
        (replace(BOUND, limited_by=Rule.SEVERE), 59, False),
        (replace(BOUND, limited_by=Rule.SEVERE), 60, True),
        (FREE, 1, True),
        (replace(BOUND, origin=SignalOrigin.STALE), 1, True),
        (replace(BOUND, limit_per_replica=9), 59, False),
        (replace(BOUND, limit_per_replica=9), 60, True),
        (replace(BOUND, limit_per_replica=None), 600, False),
        (replace(BOUND, ready=0, origin=SignalOrigin.STALE), 600, False),
        (None, 600, False),
    ],
    ids=[
        "nothing new", "less than a tenth", "a tenth within a minute", "a tenth after a minute",
        "another rule within a minute", "another rule after a minute", "no bound", "another source",
        "another limit within a minute", "another limit after a minute", "a limit nobody knows", "no replica",
        "before the first round",
    ],
)  # fmt: skip
def test_what_is_worth_a_write(view, seconds, is_written):
    before = told(BOUND)
    after = told(view, before, seconds=seconds)
    assert (after != before) is is_written
    if is_written:
        assert after["lastChangeTime"] == at(seconds)


def test_a_rate_that_falls_each_round_is_written_once_a_minute():
    status, writes, rate = told(BOUND), 0, 10.0
    for seconds in range(15, 601, 15):
        rate *= 0.93
        after = told(bound(rate), status, seconds=seconds)
        writes += after != status
        status = after
    assert writes == 10


@pytest.mark.parametrize(
    ("view", "seconds", "due"),
    [
        (BOUND, 10, None),
        (bound(9.2), 10, None),
        (bound(8.0), 10, 50.0),
        (bound(8.0), 60, None),
        (replace(BOUND, limited_by=Rule.SEVERE), 10, 50.0),
        (replace(BOUND, limit_per_replica=9), 10, 50.0),
        (FREE, 10, None),
        (replace(bound(8.0), ready=0), 10, None),
        (None, 10, None),
    ],
    ids=[
        "nothing new", "less than a tenth", "a tenth", "a tenth after a minute", "another rule", "another limit",
        "what is written at once", "no replica", "before the first round",
    ],
)  # fmt: skip
def test_what_had_to_wait_is_looked_at_again(view, seconds, due):
    assert admission_due_seconds(view, {"admission": told(BOUND)}, now=at(seconds)) == due


def test_a_time_that_cannot_be_read_holds_nothing_up():
    before = {**told(BOUND), "lastChangeTime": "yesterday"}
    assert told(bound(5.0), before)["ratePerMinute"] == 300


YES, NO = ConditionStatus.TRUE, ConditionStatus.FALSE


@pytest.mark.parametrize(
    ("changes", "expected", "said"),
    [
        ({}, (YES, Reason.SIGNALS_READ), "from the limiters"),
        ({"origin": SignalOrigin.PROMETHEUS}, (YES, Reason.SIGNALS_READ), "from Prometheus"),
        ({"prometheus": "it hangs", "answers": False}, (YES, Reason.DIRECT_FALLBACK), "it hangs"),
        (
            {"prometheus": "it hangs", "answers": False, "origin": SignalOrigin.STALE},
            (NO, Reason.PROMETHEUS_UNREACHABLE),
            "limits are held",
        ),
        ({"prometheus": "no series", "origin": SignalOrigin.STALE}, (NO, Reason.METRICS_MISSING), "no series"),
        ({"origin": SignalOrigin.STALE}, (NO, Reason.METRICS_MISSING), "limits are held"),
        ({"reached": 0}, (NO, Reason.LIMITERS_UNREACHABLE), "0 of 2"),
        ({"reached": 1}, (YES, Reason.SIGNALS_READ), ""),
    ],
    ids=[
        "limiters", "Prometheus", "Prometheus away", "both away", "no series and no metrics", "no metrics",
        "no limiter", "half of the limiters",
    ],
)  # fmt: skip
def test_signals_fresh(changes, expected, said):
    statement = signals_fresh(replace(FREE, **changes), {})
    assert (statement.status, statement.reason) == expected
    assert said in statement.message


def test_without_a_ready_replica_there_is_nothing_to_say():
    assert signals_fresh(replace(FREE, ready=0, reached=0), {}) is None


def test_another_leader_changes_nothing_before_it_has_looked(make_backend, make_deployment):
    deployment = make_deployment(replicas=1, ready=1, updated=1)
    seen = Observation(generation=3, previous={}, deployment=deployment, pods=[], fleet=BOUND)
    first = assess(make_backend(), seen, now=at(0))
    assert first["admission"]["ratePerMinute"] == 600
    assert "SignalsFresh" in [one["type"] for one in first["conditions"]]
    again = assess(make_backend(), replace(seen, previous=first, fleet=None), now=at(900))
    assert again == first


def test_a_condition_of_another_release_is_not_kept():
    previous = {"conditions": [{"type": "SignalsFresh", "status": "True", "reason": "Unheard"}]}
    assert signals_fresh(None, previous) is None
