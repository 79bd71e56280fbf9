"""Retries without a key: is this the request that is still under way, sent again?

Two equal prompts of one tenant are two requests: whoever asks the same thing several times wants several answers. So
only a request that says it is a retry (`x-stainless-retry-count`) can be the same as another one, and only as one that
was sent earlier, with the same body, by somebody who has given it up:

    the earlier one's client                        | has a byte of the answer | the retry
    ------------------------------------------------|--------------------------|-----------------------------------
    is there, and may still be waiting              | no                       | is a request of its own
    is there                                        | yes                      | is a request of its own
    is there, but waited as long as it ever does    | no                       | joins it
    is there, and said nothing of how long it waits | no                       | is a request of its own
    is gone, or its connection is dead              | no                       | joins it
    is gone, or its connection is dead              | yes                      | ends it, and is a new request

How long a client waits it says itself, in `x-stainless-read-timeout`; SDKs send both headers with every request. They
send a request again only before its first byte; so a client that has one and is there is somebody else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Kinship(Enum):
    """What a retry is to an earlier request with the same body."""

    NONE = auto()
    JOINS = auto()
    REPLACES = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A request as its client sent it.

    Attributes:
        count: How many tries its client says there were before; 0 for a first one.
        since: When it came.
        patience_seconds: How long its client waits for a byte; None when it does not say.
    """

    count: int
    since: float
    patience_seconds: float | None


def kinship(earlier: Attempt, retry_count: int, *, gone: bool, begun: bool, now: float) -> Kinship:
    """Say what a request is to an earlier one with the same body that is under way.

    Args:
        earlier: That one.
        retry_count: What the later one says.
        gone: Whether the client of the earlier one has left, as far as its connection shows.
        begun: Whether that client has a byte of its answer.
        now: The time.
    """
    if retry_count <= earlier.count:
        return Kinship.NONE
    if begun:
        return Kinship.REPLACES if gone else Kinship.NONE
    waited = earlier.patience_seconds is not None and now - earlier.since >= earlier.patience_seconds
    return Kinship.JOINS if gone or waited else Kinship.NONE
