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

_REQUESTS = frozenset({QuotaUnit.REQUESTS})
_TOKENS = frozenset({QuotaUnit.TOKENS, QuotaUnit.PROMPT_TOKENS})


def fields(views: Sequence[QuotaView], *, dialect: Dialect, now: datetime | None = None) -> list[tuple[bytes, bytes]]:
    """Return the headers that tell a client its quotas; none when there are none.

    Args:
        views: The quotas that apply to the request.
        dialect: Whose spelling the client knows.
        now: The time of day, for Anthropic's absolute times; by default that of the clock.
    """
    if not views:
        return []
    requests: QuotaView | None = None
    tokens: QuotaView | None = None
    policies, states = [], []
    for view in views:  # every answer passes here, so all is seen in one pass
        if view.unit in _TOKENS:
            tokens = _tighter(view, tokens)
        elif view.unit in _REQUESTS:
            requests = _tighter(view, requests)
        # The unit is left out: the draft has a name only for requests, which is what its absence means too.
        policies.append(f'"{view.name}";q={view.limit};w={view.window_seconds}')
        states.append(f'"{view.name}";r={view.remaining};t={math.ceil(view.reset_seconds)}')
    found: list[tuple[bytes, bytes]] = []
    for kind, tightest in ((b"requests", requests), (b"tokens", tokens)):
        if tightest is None:
            continue
        if dialect is Dialect.ANTHROPIC:
            prefix = b"anthropic-ratelimit-%b-" % kind
            found += [
                (prefix + b"limit", b"%d" % tightest.limit),
                (prefix + b"remaining", b"%d" % tightest.remaining),
                (prefix + b"reset", _time(now or datetime.now(UTC), tightest.reset_seconds)),
            ]
        else:
            found += [
                (b"x-ratelimit-limit-" + kind, b"%d" % tightest.limit),
                (b"x-ratelimit-remaining-" + kind, b"%d" % tightest.remaining),
                (b"x-ratelimit-reset-" + kind, duration(tightest.reset_seconds)),
            ]
    found += [(b"RateLimit-Policy", ", ".join(policies).encode()), (b"RateLimit", ", ".join(states).encode())]
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


def _tighter(view: QuotaView, other: QuotaView | None) -> QuotaView:
    """Return the quota of which the smaller part is left, the first of two alike."""
    return other if other is not None and other.remaining * view.limit <= view.remaining * other.limit else view


def _time(now: datetime, seconds: float) -> bytes:
    """Return a time of day as RFC 3339 in whole seconds, not before `seconds` have passed."""
    reset = now.astimezone(UTC) + timedelta(seconds=math.ceil(seconds) + (1 if now.microsecond else 0))
    return reset.strftime("%Y-%m-%dT%H:%M:%SZ").encode()
