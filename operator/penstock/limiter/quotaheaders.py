"""Quotas told to clients: OpenAI's and Anthropic's headers, which their SDKs and users know, and the IETF's.

`x-ratelimit-*` has room for one quota of requests and one of tokens: of several, the one with the smallest part left
is shown, since that is what a client meets first. `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-
headers) name all of them. All numbers are those of this replica, after the request itself was charged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from penstock.admission.quotaview import QuotaView
from penstock.api.ratelimits import QuotaUnit
from penstock.limiter.refusal import Dialect

_KINDS = {
    QuotaUnit.REQUESTS: b"requests",
    QuotaUnit.TOKENS: b"tokens",
    QuotaUnit.PROMPT_TOKENS: b"tokens",
    QuotaUnit.CONNECTIONS: b"connections",
    QuotaUnit.OPEN_CONNECTIONS: b"connections",
}
_SHOWN_KINDS = (b"requests", b"tokens")


def fields(views: Sequence[QuotaView], *, dialect: Dialect, now: datetime) -> list[tuple[bytes, bytes]]:
    """Return the headers that tell a client its quotas; none when there are none.

    Args:
        views: The quotas that apply to the request.
        dialect: Whose spelling the client knows.
        now: The time of day, for Anthropic's absolute times.
    """
    found: list[tuple[bytes, bytes]] = []
    for kind in _SHOWN_KINDS:
        tightest = min((view for view in views if _KINDS[view.unit] == kind), key=_part_left, default=None)
        if tightest is None:
            continue
        numbers = (b"limit", b"%d" % tightest.limit), (b"remaining", b"%d" % tightest.remaining)
        if dialect is Dialect.ANTHROPIC:
            found += [(b"anthropic-ratelimit-%b-%b" % (kind, name), value) for name, value in numbers]
            found.append((b"anthropic-ratelimit-%b-reset" % kind, _time(now, tightest.reset_seconds)))
        else:
            found += [(b"x-ratelimit-%b-%b" % (name, kind), value) for name, value in numbers]
            found.append((b"x-ratelimit-reset-%b" % kind, duration(tightest.reset_seconds)))
    if views:
        # The unit is left out: the draft has a name only for requests, which is what its absence means too.
        policies = (b'"%b";q=%d;w=%d' % (view.name.encode(), view.limit, view.window_seconds) for view in views)
        states = (
            b'"%b";r=%d;t=%d' % (view.name.encode(), view.remaining, math.ceil(view.reset_seconds)) for view in views
        )
        found += [(b"RateLimit-Policy", b", ".join(policies)), (b"RateLimit", b", ".join(states))]
    return found


def duration(seconds: float) -> bytes:
    """Return a time as Go writes it, as OpenAI's headers do: `12ms`, `1.5s`, `6m0s`, `1h0m0s`; rounded up."""
    milliseconds = math.ceil(seconds * 1000)
    if milliseconds < 1000:
        return b"%dms" % milliseconds if milliseconds else b"0s"
    minutes, rest = divmod(milliseconds, 60_000)
    shown = b"%d.%03d" % divmod(rest, 1000)
    text = shown.rstrip(b"0").rstrip(b".") + b"s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = (b"%dh" % hours if hours else b"") + b"%dm" % minutes + text
    return text


def _part_left(view: QuotaView) -> float:
    return view.remaining / view.limit


def _time(now: datetime, seconds: float) -> bytes:
    """Return a time of day as RFC 3339 in whole seconds, not before `seconds` have passed."""
    reset = now.astimezone(UTC) + timedelta(seconds=math.ceil(seconds) + (1 if now.microsecond else 0))
    return reset.strftime("%Y-%m-%dT%H:%M:%SZ").encode()
