"""How long a request may wait for its turn: the shortest time that anybody names.

| who | how long |
|---|---|
| its priority class | `maxWaitSeconds` |
| the queue | `maxWaitSeconds` |
| the client's SDK, in `x-stainless-read-timeout` | half of the seconds it waits for the first byte |
| the client, in `x-penstock-deadline-ms` | that many milliseconds |

A client can only shorten the time. What is no number of at least 0 is as good as not there.
"""

from __future__ import annotations

import re

from penstock.api.admission import PriorityClass, Queue
from penstock.limiter.head import RequestHead

DEADLINE_HEADER = b"x-penstock-deadline-ms"
READ_TIMEOUT_HEADER = b"x-stainless-read-timeout"
READ_TIMEOUT_SHARE = 0.5
"""A client whose time is over sends the request again: then nobody wants the first one any more."""

MILLISECONDS = 1000

_SAID_BY_CLIENTS = ((READ_TIMEOUT_HEADER, 1 / READ_TIMEOUT_SHARE), (DEADLINE_HEADER, MILLISECONDS))
"""Headers, and how much of what they say makes one second of patience."""

_NUMBER = re.compile(rb"[0-9]{1,15}(?:\.[0-9]{1,15})?")


def patience_seconds(head: RequestHead, priority_class: PriorityClass, queue: Queue) -> float:
    """Return how long a request may wait, in seconds.

    Args:
        head: Its head.
        priority_class: Its class.
        queue: What the policy says of all classes.
    """
    seconds = float(min(priority_class.max_wait_seconds, queue.max_wait_seconds))
    for name, per_second in _SAID_BY_CLIENTS:
        said = number(head, name) if name in head.values else None
        if said is not None:
            seconds = min(seconds, said / per_second)
    return seconds


def number(head: RequestHead, name: bytes) -> float | None:
    """Return the number in a header; None when there is none."""
    value = head.value(name)
    return float(value) if value is not None and _NUMBER.fullmatch(value) else None
