"""The limits in force, as status tells them: only when they have changed by much, since running numbers are metrics.

A rate that moves is written when it has moved by a tenth since it was last written, and not more often than once a
minute; that it begins or ceases to bind, and from what it is decided, is written at once.
"""

from __future__ import annotations

from datetime import datetime

from penstock.api.conditions import ConditionStatus, ConditionType, Reason
from penstock.api.status import AdmissionStatus, SignalOrigin
from penstock.fleet.target import NEWS, FleetView
from penstock.resources.objects import Object
from penstock.status.conditions import Statement, condition_of
from penstock.status.shapes import mapping, number, text

RATE_PAUSE_SECONDS = 60


def admission_status(view: FleetView | None, previous: Object, *, now: str) -> Object:
    """Return `status.admission`, empty when nothing is known and nothing was.

    Args:
        view: What the slow loop knows.
        previous: The status so far.
        now: The time (RFC 3339).
    """
    before = mapping(previous, "admission")
    if view is None or not view.ready:
        return before  # nobody is there whose limits these would be
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
    return found if _is_news(before, found, now=now) else before


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


def _is_news(before: Object, found: Object, *, now: str) -> bool:
    rest = ("limitPerReplica", "source", "limitedBy")
    if any(before.get(name) != found.get(name) for name in rest):
        return True
    if ("ratePerMinute" in before) != ("ratePerMinute" in found):
        return True
    then, rate = number(before, "ratePerMinute"), number(found, "ratePerMinute")
    return (
        abs(rate - then) >= NEWS * max(then, 1) and _seconds(text(before, "lastChangeTime"), now) >= RATE_PAUSE_SECONDS
    )


def _seconds(since: str, now: str) -> float:
    """Return the seconds between two times; endless when one cannot be read."""
    try:
        return (datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds()
    except (ValueError, TypeError):
        return float("inf")
