"""From statements to the list of conditions, where a time changes only when a status does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.api.conditions import Condition, ConditionStatus, ConditionType, Reason
from penstock.resources.objects import Object

LONGEST_MESSAGE = 32768

ORDER = tuple(ConditionType)


class Statement(NamedTuple):
    """A condition without its history."""

    type: ConditionType
    status: ConditionStatus
    reason: Reason
    message: str


def conditions(
    statements: Iterable[Statement], *, previous: Sequence[Object], generation: int, now: str
) -> list[Object]:
    """Return the conditions as status holds them, in a fixed order.

    Args:
        statements: What is true now.
        previous: The conditions so far, which know since when.
        generation: The generation of the spec that the statements speak about.
        now: The time, for those whose status differs from before (RFC 3339).
    """
    since = {(entry["type"], entry["status"]): entry["lastTransitionTime"] for entry in previous}
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
