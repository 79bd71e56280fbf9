"""The limits in force, as status tells them: only when they have changed by much, since running numbers are metrics.

That a rate begins or ceases to bind, and where signals come from, is written at once. All else waits until a minute has
passed since the last write, and is then looked at again: a rate that has moved by a tenth, another rule or limit.
"""

from __future__ import annotations

from datetime import datetime

from penstock.api.conditions import ConditionStatus, ConditionType, Reason
from penstock.api.status import AdmissionStatus, SignalOrigin
from penstock.fleet.target import NEWS, FleetView
from penstock.resources.objects import Object
from penstock.status.conditions import Statement, condition_of
from penstock.status.shapes import mapping, number, text

PAUSE_SECONDS = 60


def admission_status(view: FleetView | None, previous: Object, *, now: str) -> Object:
    """Return `status.admission`, empty when nothing is known and nothing was.

    Args:
        view: What the slow loop knows.
        previous: The status so far.
        now: The time (RFC 3339).
    """
    before = mapping(previous, "admission")
    found = _found(view, before, now=now)
    return before if found is None or _pause_seconds(before, found, now=now) != 0 else found


def admission_due_seconds(view: FleetView | None, previous: Object, *, now: str) -> float | None:
    """Return when there is something to write that has to wait now; None when there is nothing.

    Args:
        view: What the slow loop knows.
        previous: The status so far.
        now: The time (RFC 3339).
    """
    before = mapping(previous, "admission")
    found = _found(view, before, now=now)
    return None if found is None else _pause_seconds(before, found, now=now) or None


def _found(view: FleetView | None, before: Object, *, now: str) -> Object | None:
    """Return what would be written now; None when nobody is there whose limits these would be."""
    if view is None or not view.ready:
        return None
    bound = view.bound_per_second
    found = AdmissionStatus(
        limit_per_replica=view.limit_per_replica,
        rate_per_minute=None if bound is None else max(1, round(60 * bound)),
        source=view.origin,
        limited_by=view.limited_by,
        last_change_time=now,
    ).to_dict()
    if view.limit_per_replica is None and "limitPerReplica" in before:
        found["limitPerReplica"] = before["limitPerReplica"]  # nobody has said that it is another
    return found


def signals_fresh(view: FleetView | None, previous: Object) -> Statement | None:
    """Return the condition `SignalsFresh`; None while no replica is ready, since then there is nothing to see.

    Before the first round of an operator that has just begun it is what the last one has said.
    """
    if view is None:
        return _as_before(condition_of(previous, ConditionType.SIGNALS_FRESH))
    if not view.ready:
        return None
    yes, no = ConditionStatus.TRUE, ConditionStatus.FALSE
    if not view.reaches_limiters:
        message = f"{view.reached} of {view.ready} limiters have taken the last push; the others hold what they have"
        return Statement(ConditionType.SIGNALS_FRESH, no, Reason.LIMITERS_UNREACHABLE, message)
    cause = Reason.METRICS_MISSING if view.answers else Reason.PROMETHEUS_UNREACHABLE
    if view.origin is SignalOrigin.STALE:
        message = f"{view.prometheus}, and the limiters do not know their engines' load: limits are held"
        if not view.prometheus:
            cause, message = Reason.METRICS_MISSING, "the limiters do not know their engines' load: limits are held"
        return Statement(ConditionType.SIGNALS_FRESH, no, cause, message)
    if view.prometheus:
        message = f"{view.prometheus}; signals come from the limiters"
        return Statement(ConditionType.SIGNALS_FRESH, yes, Reason.DIRECT_FALLBACK, message)
    message = f"signals come from {'Prometheus' if view.origin is SignalOrigin.PROMETHEUS else 'the limiters'}"
    return Statement(ConditionType.SIGNALS_FRESH, yes, Reason.SIGNALS_READ, message)


def _as_before(condition: Object) -> Statement | None:
    try:
        status, reason = ConditionStatus(text(condition, "status")), Reason(text(condition, "reason"))
    except ValueError:
        return None
    return Statement(ConditionType.SIGNALS_FRESH, status, reason, text(condition, "message"))


def _pause_seconds(before: Object, found: Object, *, now: str) -> float | None:
    """Return how long what is new has to wait, 0 for not at all; None when nothing is new."""
    if before.get("source") != found.get("source") or ("ratePerMinute" in before) != ("ratePerMinute" in found):
        return 0
    then, rate = number(before, "ratePerMinute"), number(found, "ratePerMinute")
    moved = abs(rate - then) >= NEWS * max(then, 1)
    if not moved and all(before.get(name) == found.get(name) for name in ("limitPerReplica", "limitedBy")):
        return None
    return max(0.0, PAUSE_SECONDS - _seconds(text(before, "lastChangeTime"), now))


def _seconds(since: str, now: str) -> float:
    """Return the seconds between two times; endless when one cannot be read."""
    try:
        return (datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds()
    except (ValueError, TypeError):
        return float("inf")
