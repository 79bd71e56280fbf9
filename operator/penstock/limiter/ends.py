"""How exchanges end, what that says about the engine, and how much of an answer is read to know it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from penstock.admission.errorclass import ErrorClass, classify
from penstock.admission.permit import Outcome
from penstock.limiter.head import CHUNKED, ResponseHead
from penstock.limiter.usage import UsageWatch

if TYPE_CHECKING:
    from penstock.limiter.visit import Visit

SHED_STATUSES = frozenset({429, 503, 504})


class End(StrEnum):
    """How an exchange ended, as a metric label."""

    COMPLETED = "completed"
    CLIENT_GONE = "client_gone"
    ENGINE_UNAVAILABLE = "engine_unavailable"
    ENGINE_FAILED = "engine_failed"
    ENGINE_TIMEOUT = "engine_timeout"
    CUT = "cut"

    __hash__ = str.__hash__  # every exchange counts its end; the hash of Enum is a Python function


def outcome_of(end: End, *, status: int, watch: UsageWatch | None) -> Outcome:
    """Return what an exchange says about the engine's capacity.

    Args:
        end: How it ended; not because of its client or the limiter.
        status: Of the engine's answer.
        watch: What the answer showed; None when that cannot be read.
    """
    if end is not End.COMPLETED:
        return Outcome.IGNORE if end is End.ENGINE_UNAVAILABLE else Outcome.DROPPED
    if status in SHED_STATUSES:
        return Outcome.DROPPED
    if status >= 400:
        return Outcome.IGNORE
    if watch is None:
        return Outcome.SUCCESS
    if watch.error is not None:  # told inside of an answer that had begun well
        return Outcome.IGNORE if classify(0, watch.error) is ErrorClass.PERMANENT else Outcome.DROPPED
    return Outcome.DROPPED if watch.aborted else Outcome.SUCCESS


def spoiled(watch: UsageWatch | None) -> bool:
    """Say whether an answer that is complete says that it failed."""
    return watch is not None and (watch.error is not None or watch.aborted)


def watch_for(visit: Visit, head: ResponseHead) -> UsageWatch | None:
    """Return what reads the usage of an answer; None when there is nothing to be read."""
    if not visit.wish.kind.reports_usage or b"content-encoding" in head.values:
        return None
    stream = head.is_event_stream
    return UsageWatch(visit.wish.kind, stream=stream, remove_usage=visit.add_usage and stream)


def without_length(head: ResponseHead) -> ResponseHead:
    """Return the head of an answer that will be shorter than the engine says: it is told in chunks."""
    fields = [field for field in head.fields if field[0] != b"content-length"]
    values = {name: found for name, found in head.values.items() if name != b"content-length"}
    return msgspec.structs.replace(head, fields=fields, values=values, length=CHUNKED)
