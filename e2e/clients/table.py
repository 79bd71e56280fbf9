"""What each client makes of each scene: the exception or status it shows, whether it comes again, and after how long.

This is asserted, line by line, against the clients themselves. Five kinds of clients behave alike within their kind:

| kind | clients | shows | tries again after |
|---|---|---|---|
| openai | openai, newest and before 2.52 | an exception with `code` and `type` | 408, 409, 429, 5xx, a time-out |
| ogx | ogx-client | an exception with both in its `body` | the same without 500 |
| anthropic | anthropic | an exception with `type` only; in a stream one with status 200 | as openai |
| curl | curl with `--retry` | status and body | 408, 429, 500, 502, 503, 504, a time-out |
| plain | httpx, Node's fetch, Go's net/http | status and body | nothing |

A row leaves out `ogx` where it is as `openai`, and `curl` where it is as `plain`. A success has status 200 and no code.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

CLIENTS: Final = ("openai", "openai-old", "ogx", "anthropic", "curl", "httpx", "node", "go")
PLAIN: Final = ("httpx", "node", "go")


class Waits(StrEnum):
    """How long a client waits before each further try."""

    NONE = "-"
    """It does not try again."""

    TOLD = "as retry-after-ms says"
    """To the millisecond."""

    """The most that the limiter says, and that older SDKs believe."""

    TOLD_WHOLE_SECONDS = "as Retry-After says"
    """In whole seconds; `retry-after-ms` is not known."""

    BACKOFF = "0.4-0.5 s, then twice that"
    """By itself: nothing is said about a time."""

    BACKOFF_WHOLE_SECONDS = "1 s, then twice that"
    """The same in curl."""


@dataclass(frozen=True)
class Outcome:
    """What a client surfaces.

    Attributes:
        raised: Class of the exception, or what its language calls the error; empty when there is none.
        status: Status that it shows; None where the exception has none.
        code, kind: `error.code` and `error.type`.
        tries: Requests that it sends.
        waits: How long it waits between them.
        finish: How the answer says that it ended, where the scene is about that.
    """

    raised: str = ""
    status: int | None = 200
    code: str | None = None
    kind: str | None = None
    tries: int = 1
    waits: Waits = Waits.NONE
    finish: str | None = None


Row = dict[str, Outcome]


def row(
    *, openai: Outcome, anthropic: Outcome, plain: Outcome, ogx: Outcome | None = None, curl: Outcome | None = None
) -> Row:
    """Return what each client surfaces, from what each kind does."""
    return {
        "openai": openai,
        "openai-old": openai,
        "ogx": ogx or openai,
        "anthropic": anthropic,
        "curl": curl or plain,
        **dict.fromkeys(PLAIN, plain),
    }


def same(outcome: Outcome) -> Row:
    """Return a row in which all clients do the same."""
    return dict.fromkeys(CLIENTS, outcome)


INVALID, SERVER = "invalid_request_error", "server_error"
SERVED = Outcome()
TRIED_AS_TOLD = Outcome(tries=2, waits=Waits.TOLD)
TRIED_BY_ITSELF = Outcome(tries=2, waits=Waits.BACKOFF)
TRIED_BY_CURL = Outcome(tries=2, waits=Waits.TOLD_WHOLE_SECONDS)
TRIED_BY_CURL_ITSELF = Outcome(tries=2, waits=Waits.BACKOFF_WHOLE_SECONDS)
TIMED_OUT = Outcome("APITimeoutError", None, tries=2, waits=Waits.BACKOFF)
OVERLOADED_ANTHROPIC = Outcome("ServiceUnavailableError", 503, None, "overloaded_error")

TABLE: Final[dict[str, Row]] = {
    "whole": same(SERVED),
    "stream": same(SERVED),
    # ---- 400, 401, 404: nobody tries again
    "malformed": row(
        openai=Outcome("BadRequestError", 400, "bad_request", INVALID),
        anthropic=Outcome("BadRequestError", 400, None, INVALID),
        plain=Outcome("", 400, "bad_request", INVALID),
    ),
    "refused_by_engine": row(
        openai=Outcome("BadRequestError", 400, "400", "BadRequestError"),
        anthropic=Outcome("BadRequestError", 400, None, "BadRequestError"),
        plain=Outcome("", 400, "400", "BadRequestError"),
    ),
    "too_large_for_quota": row(
        openai=Outcome("BadRequestError", 400, "never_fits", INVALID),
        anthropic=Outcome("BadRequestError", 400, None, INVALID),
        plain=Outcome("", 400, "never_fits", INVALID),
    ),
    "unknown_key": row(
        openai=Outcome("AuthenticationError", 401, "unauthorized", "authentication_error"),
        anthropic=Outcome("AuthenticationError", 401, None, "authentication_error"),
        plain=Outcome("", 401, "unauthorized", "authentication_error"),
    ),
    "unknown_path": row(
        openai=Outcome("NotFoundError", 404, "unknown_path", INVALID),
        anthropic=Outcome("NotFoundError", 404, None, "not_found_error"),
        plain=Outcome("", 404, "unknown_path", INVALID),
    ),
    "unknown_model": row(
        openai=Outcome("NotFoundError", 404, "404", "NotFoundError"),
        anthropic=Outcome("NotFoundError", 404, None, "NotFoundError"),
        plain=Outcome("", 404, "404", "NotFoundError"),
    ),
    # ---- 429: a quota is used up
    "over_quota": row(
        openai=Outcome("RateLimitError", 429, "rate_limit_exceeded", "requests"),
        anthropic=Outcome("RateLimitError", 429, None, "rate_limit_error"),
        plain=Outcome("", 429, "rate_limit_exceeded", "requests"),
    ),
    "over_quota_and_again": row(
        openai=TRIED_AS_TOLD,
        anthropic=TRIED_AS_TOLD,
        curl=TRIED_BY_CURL,
        plain=Outcome("", 429, "rate_limit_exceeded", "requests"),
    ),
    "over_long_quota": row(
        openai=Outcome("RateLimitError", 429, "rate_limit_exceeded", "requests"),
        anthropic=Outcome("RateLimitError", 429, None, "rate_limit_error"),
        plain=Outcome("", 429, "rate_limit_exceeded", "requests"),
    ),
    # ---- 503: the replica is full, busy or leaving
    "full": row(
        openai=Outcome("InternalServerError", 503, "overloaded", SERVER),
        anthropic=OVERLOADED_ANTHROPIC,
        plain=Outcome("", 503, "overloaded", SERVER),
    ),
    "full_as_429": row(
        openai=Outcome("RateLimitError", 429, "overloaded", "overloaded"),
        anthropic=Outcome("RateLimitError", 429, None, "rate_limit_error"),
        plain=Outcome("", 429, "overloaded", "overloaded"),
    ),
    "full_and_again": row(
        openai=TRIED_AS_TOLD,
        anthropic=TRIED_AS_TOLD,
        curl=TRIED_BY_CURL,
        plain=Outcome("", 503, "overloaded", SERVER),
    ),
    "no_retry_wanted": row(
        openai=Outcome("InternalServerError", 503, "retry_budget_exhausted", SERVER, 2, Waits.TOLD),
        anthropic=Outcome("ServiceUnavailableError", 503, None, "overloaded_error", 2, Waits.TOLD),
        curl=Outcome("", 503, "retry_budget_exhausted", SERVER, 3, Waits.TOLD_WHOLE_SECONDS),
        plain=Outcome("", 503, "overloaded", SERVER),
    ),
    "draining": row(
        openai=Outcome("InternalServerError", 503, "draining", SERVER),
        anthropic=OVERLOADED_ANTHROPIC,
        plain=Outcome("", 503, "draining", SERVER),
    ),
    "draining_and_again": row(
        openai=TRIED_AS_TOLD,
        anthropic=TRIED_AS_TOLD,
        curl=TRIED_BY_CURL,
        plain=Outcome("", 503, "draining", SERVER),
    ),
    "queued_too_long": row(
        openai=Outcome("InternalServerError", 503, "queue_timeout", SERVER),
        anthropic=OVERLOADED_ANTHROPIC,
        plain=Outcome("", 503, "queue_timeout", SERVER),
    ),
    # ---- the engine fails
    "engine_error": row(
        openai=TRIED_BY_ITSELF,
        ogx=Outcome("InternalServerError", 500, "500", "InternalServerError"),
        anthropic=TRIED_BY_ITSELF,
        curl=TRIED_BY_CURL_ITSELF,
        plain=Outcome("", 500, "500", "InternalServerError"),
    ),
    "engine_lost": row(
        openai=TRIED_BY_ITSELF,
        anthropic=TRIED_BY_ITSELF,
        curl=TRIED_BY_CURL_ITSELF,
        plain=Outcome("", 502, "engine_failed", SERVER),
    ),
    # ---- a stream has begun: nobody tries again, and nobody takes half an answer for a whole one
    "engine_error_in_stream": row(
        openai=Outcome("APIError", None, "500", "InternalServerError"),
        anthropic=Outcome("APIStatusError", 200, None, "InternalServerError"),
        plain=Outcome("", 200, "500", "InternalServerError"),
    ),
    "engine_lost_in_stream": row(
        openai=Outcome("APIError", None, "engine_failed", SERVER),
        anthropic=Outcome("APIStatusError", 200, None, "api_error"),
        plain=Outcome("", 200, "engine_failed", SERVER),
    ),
    "abort_in_stream": row(
        openai=Outcome(finish="abort"),
        anthropic=SERVED,
        plain=Outcome(finish="abort"),
    ),
    # ---- the client gives up
    "cancelled": {**same(SERVED), "node": Outcome("AbortError")},
    "timed_out": {
        **dict.fromkeys(("openai", "openai-old", "ogx", "anthropic"), TIMED_OUT),
        "curl": Outcome("exit 28", None, tries=2, waits=Waits.BACKOFF_WHOLE_SECONDS),
        "httpx": Outcome("ReadTimeout", None),
        "node": Outcome("TimeoutError", None),
        "go": Outcome("context.DeadlineExceeded", None),
    },
}
