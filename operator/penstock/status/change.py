"""What a new status means beside the one that is stored: whether it is worth a write, and what there is to announce.

Other controllers may add conditions of their own and fields of their own; these are left out of the comparison, so that
nobody's write is answered with one of ours. And what only makes a picture sharper (a count, a better message) can wait
a moment, so that a burst of events becomes one write, while what tools wait for is written at once.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from penstock.api.conditions import ConditionStatus, ConditionType, Reason
from penstock.api.status import LLMBackendStatus
from penstock.resources.objects import Object
from penstock.status.conditions import condition_of
from penstock.status.shapes import mappings, text

_FIELDS = frozenset(field.alias or name for name, field in LLMBackendStatus.model_fields.items())
_TYPES = frozenset(ConditionType)

_CALM = frozenset({Reason.PROGRESSING, Reason.SCALING, Reason.ROLLING_OUT, Reason.WAITING_FOR_MODEL})
_CALM |= {Reason.DOWNLOADING_MODEL, Reason.SUSPENDED, Reason.PAUSED}
"""Reasons of a backend that is not ready and has no trouble."""


class Change(Enum):
    """How much differs."""

    NONE = auto()
    """Nothing of ours."""

    MINOR = auto()
    """Numbers, messages or reasons: the picture is sharper, and nothing that tools wait for has changed."""

    MAJOR = auto()
    """The generation that is spoken about, or the status of a condition."""


class Transition(NamedTuple):
    """A change of the backend's readiness that is worth an Event.

    Attributes:
        reason: The new reason.
        message: The new message.
        warning: Whether it is trouble.
    """

    reason: str
    message: str
    warning: bool


def change(previous: Object, status: Object) -> Change:
    """Tell how much a new status differs from the stored one."""
    if _own(previous) == _own(status):
        return Change.NONE
    return Change.MINOR if _outline(previous) == _outline(status) else Change.MAJOR


def transition(previous: Object, status: Object) -> Transition | None:
    """Return what there is to announce: readiness reached or lost, trouble that begins or becomes another one."""
    before, after = (condition_of(one, ConditionType.READY) for one in (previous, status))
    if (text(before, "status"), text(before, "reason")) == (text(after, "status"), text(after, "reason")):
        return None
    reason = text(after, "reason")
    ready = ConditionStatus.TRUE in (text(before, "status"), text(after, "status"))
    warning = text(after, "status") == ConditionStatus.FALSE and reason not in _CALM
    return Transition(reason, text(after, "message"), warning) if ready or warning else None


def _own(status: Object) -> Object:
    own = {name: value for name, value in status.items() if name in _FIELDS and name != "conditions"}
    # A list with keys has no order of its own: the API server puts what others add anywhere.
    types = {text(entry, "type"): entry for entry in mappings(status, "conditions")}
    return own | {"conditions": {name: entry for name, entry in types.items() if name in _TYPES}}


def _outline(status: Object) -> tuple[object, dict[str, str]]:
    statuses = {text(entry, "type"): text(entry, "status") for entry in mappings(status, "conditions")}
    return status.get("observedGeneration"), {name: value for name, value in statuses.items() if name in _TYPES}
