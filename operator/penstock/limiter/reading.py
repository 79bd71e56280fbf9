"""What admission reads of a request's body, and what it adds to it.

In shadow mode a body that would be refused goes on as it is, since the engine may see it otherwise; nothing is known of
it then, and its decision is counted.
"""

from __future__ import annotations

import msgspec

from penstock.limiter.amendment import with_usage
from penstock.limiter.body import read_wish
from penstock.limiter.path import Route
from penstock.limiter.refusal import Refused
from penstock.limiter.wish import KINDS, Kind, Wish


def unread(route: Route) -> Wish:
    """Return the wish of a request whose body is not read."""
    return Wish(kind=KINDS.get(route.path, Kind.ENCODE))


def wish_of(route: Route, body: bytes) -> Wish | Refused:
    """Return what a body asks for, or why it should be refused."""
    try:
        return read_wish(route.path, body)
    except Refused as refused:
        return refused


def asking_for_usage(wish: Wish, body: bytes) -> bytes | None:
    """Return the body that also asks for usage; None when its answer tells it anyway or the body cannot be amended."""
    if not wish.can_add_usage:
        return None
    try:
        return with_usage(body)
    except msgspec.DecodeError:  # the options hold a number that is none; the engine will say so
        return None
