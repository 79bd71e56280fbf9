"""What a client is told when its request is not admitted: one answer for each reason of `Shed`.

Where a time is known, it is told: that at which a quota has room again, or in which those that wait now are served.
"""

from __future__ import annotations

from penstock.admission.quotaview import QuotaRefusal
from penstock.admission.shed import Shed
from penstock.api.admission import OverloadStatus
from penstock.api.ratelimits import QuotaUnit
from penstock.limiter.refusal import Fields, Reason, Refused

STATUSES = {OverloadStatus.SERVICE_UNAVAILABLE: 503, OverloadStatus.TOO_MANY_REQUESTS: 429}

_REASONS = {
    Shed.QUEUE_FULL: Reason.OVERLOADED,
    Shed.WAIT_TOO_LONG: Reason.OVERLOADED,
    Shed.QUEUE_TIMEOUT: Reason.QUEUE_TIMEOUT,
    Shed.LOW_PRIORITY: Reason.SHED_LOW_PRIORITY,
    Shed.RETRY_BUDGET: Reason.RETRY_BUDGET_EXHAUSTED,
}
_MESSAGES = {
    Shed.QUEUE_FULL: "This replica is full, and as many requests wait as may wait. Try again later.",
    Shed.WAIT_TOO_LONG: "This replica is full: the request would wait longer than it may. Try again later.",
    Shed.QUEUE_TIMEOUT: "The request has waited as long as it may, and the replica is still full. Try again later.",
    Shed.LOW_PRIORITY: "The replica is full, and requests of higher priority came. Try again later.",
    Shed.RETRY_BUDGET: "Too many requests are sent again while the replica is busy. Wait for the first answer.",
}
_OF_OVERLOAD = frozenset({Shed.QUEUE_FULL, Shed.WAIT_TOO_LONG, Shed.QUEUE_TIMEOUT})
_UNITS = {
    QuotaUnit.REQUESTS: "requests",
    QuotaUnit.TOKENS: "tokens",
    QuotaUnit.PROMPT_TOKENS: "prompt tokens",
    QuotaUnit.CONNECTIONS: "connections",
    QuotaUnit.OPEN_CONNECTIONS: "open connections",
}


def refusal(shed: Shed, *, overload: OverloadStatus, retry_after_seconds: float | None) -> Refused:
    """Return the answer to a request that the gate or the retry budget does not admit.

    Args:
        shed: Why; not for quotas.
        overload: How a full replica answers.
        retry_after_seconds: When to try again; None when that is not known.
    """
    status = STATUSES[overload] if shed in _OF_OVERLOAD else None
    kind = "overloaded" if status == STATUSES[OverloadStatus.TOO_MANY_REQUESTS] else None
    return Refused(_REASONS[shed], _MESSAGES[shed], status=status, kind=kind, retry_after_seconds=retry_after_seconds)


def pace_refusal(delay_seconds: float, *, patience_seconds: float, fields: Fields) -> Refused:
    """Return the answer to a request that the pace of a quota would hold for longer than it may wait.

    Args:
        delay_seconds: How much later it could start.
        patience_seconds: How long it may wait.
        fields: Headers that tell all quotas.
    """
    message = (
        f"The pace of a quota holds the request for {delay_seconds:.1f} s, and it may wait {patience_seconds:g} s."
    )
    return Refused(
        Reason.RATE_LIMIT_EXCEEDED, message, retry_after_seconds=delay_seconds - patience_seconds, fields=fields
    )


def quota_refusal(refused: QuotaRefusal, *, fields: Fields) -> Refused:
    """Return the answer to a request that a quota does not let pass.

    Args:
        refused: Which quota, and how long.
        fields: Headers that tell all quotas.
    """
    unit = _UNITS[refused.unit]
    if refused.shed is Shed.NEVER_FITS:
        message = f"The request needs more {unit} than quota {refused.name} ever lets pass. Make it smaller."
        return Refused(Reason.NEVER_FITS, message, fields=fields)
    message = f"Quota {refused.name} of {unit} is used up. Try again in {refused.wait_seconds:.1f} s."
    kind = "tokens" if refused.unit in {QuotaUnit.TOKENS, QuotaUnit.PROMPT_TOKENS} else "requests"
    return Refused(
        Reason.RATE_LIMIT_EXCEEDED, message, kind=kind, retry_after_seconds=refused.wait_seconds, fields=fields
    )
