"""From statements to the list of conditions, where a time changes only when a status does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.api.conditions import Condition, ConditionStatus, ConditionType, Reason
from penstock.resources.objects import Object
from penstock.status.shapes import mappings, text

LONGEST_MESSAGE = 32768

ORDER = tuple(ConditionType)


class Statement(NamedTuple):
    """A condition without its history."""

    type: ConditionType
    status: ConditionStatus
    reason: Reason
    message: str


def conditions(statements: Iterable[Statement], *, previous: Object, generation: int, now: str) -> list[Object]:
    """Return the conditions as status holds them, in a fixed order.

    Args:
        statements: What is true now.
        previous: The status so far, whose conditions know since when.
        generation: The generation of the spec that the statements speak about.
        now: The time, for those whose status differs from before (RFC 3339).
    """
    since = {
        (text(entry, "type"), text(entry, "status")): time
        for entry in mappings(previous, "conditions")
        if (time := text(entry, "lastTransitionTime"))
    }
    return [
        Condition(
            type=statement.type,
            status=statement.status,
            reason=statement.reason,
            message=statement.message[:LONGEST_MESSAGE],
            last_transition_time=since.get((statement.type, statement.status), now),
            observed_generation=generation,
        ).to_dict()
        for statement in sorted(statements, key=lambda statement: ORDER.index(statement.type))
    ]


def condition_of(status: Object, condition_type: ConditionType) -> Object:
    """Return the condition of that type; empty when the status has none."""
    return next((entry for entry in mappings(status, "conditions") if text(entry, "type") == condition_type), {})
