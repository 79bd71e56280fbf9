"""Why a request is not admitted: one word each, used as metric label and in `/state`."""

from __future__ import annotations

from enum import StrEnum


class Shed(StrEnum):
    """Why a request is not admitted."""

    QUEUE_FULL = "queue_full"
    """As many wait as may wait, and this request has no claim on a place."""

    WAIT_TOO_LONG = "wait_too_long"
    """It would wait longer than it may, judging by how fast others are served; so it is told at once."""

    QUEUE_TIMEOUT = "queue_timeout"
    """It has waited as long as it may."""

    LOW_PRIORITY = "low_priority"
    """It was in a sheddable class and gave its place in a full queue to a higher one."""

    RETRY_BUDGET = "retry_budget"
    """It repeats an earlier request, and too many do."""

    QUOTA = "quota"
    """A quota of its tenant, its address or the backend is used up."""

    NEVER_FITS = "never_fits"
    """It is larger than a quota ever allows."""

    UNKNOWN_CALLER = "unknown_caller"
    """Nobody knows who sent it, and only known callers are let in."""

    BAD_REQUEST = "bad_request"
    """Its body is wrong, or asks for what is not here."""

    __hash__ = str.__hash__  # refusals are counted by it; the hash of Enum is a Python function
