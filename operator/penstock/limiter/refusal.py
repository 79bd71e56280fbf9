"""Refusals: every reason for which the limiter answers itself, as one table, and how the answer is written.

A client sees the error shape of the API it called: Anthropic's for `/v1/messages`, OpenAI's for everything else. The
same error object is used inside a stream that has already begun. `Retry-After` is only sent where trying again can
help; `retry-after-ms`, which the SDKs read first, carries the same time with jitter, so that many clients refused in
one moment do not come back in one moment.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a request was refused or a stream ended: one word, used as error code, header and metric label."""

    BAD_REQUEST = "bad_request"
    HEAD_TOO_LARGE = "head_too_large"
    BODY_TOO_LARGE = "body_too_large"
    REQUEST_TIMEOUT = "request_timeout"
    EXPECTATION_FAILED = "expectation_failed"
    METHOD_UNKNOWN = "method_unknown"
    CODING_UNKNOWN = "coding_unknown"
    VERSION_NOT_SUPPORTED = "version_not_supported"
    UNKNOWN_PATH = "unknown_path"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    UNAUTHORIZED = "unauthorized"
    OVERLOADED = "overloaded"
    QUEUE_TIMEOUT = "queue_timeout"
    SHED_LOW_PRIORITY = "shed_low_priority"
    RETRY_BUDGET_EXHAUSTED = "retry_budget_exhausted"
    KEY_CONFLICT = "idempotency_key_conflict"
    KEY_BUSY = "idempotency_key_busy"
    FELL_BEHIND = "fell_behind"
    RATE_LIMIT_EXCEEDED = "rate_limit_exceeded"
    NEVER_FITS = "never_fits"
    DRAINING = "draining"
    ENGINE_UNAVAILABLE = "engine_unavailable"
    ENGINE_FAILED = "engine_failed"
    ENGINE_TIMEOUT = "engine_timeout"


class Dialect(StrEnum):
    """Whose error shape the client expects."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


@dataclass(frozen=True, slots=True)
class Shape:
    """How a reason is answered.

    Attributes:
        status: HTTP status.
        kind: OpenAI's `error.type`.
        retry_after_seconds: None when trying again cannot help; else what is sent when nothing better is known.
        hopeless: Whether SDKs are told not to try again by themselves, where the status alone would make them.
    """

    status: int
    kind: str
    retry_after_seconds: int | None = None
    hopeless: bool = False


RETRY_SPREAD = 0.5
"""By how much of the time some are sent away for longer than others, so that not all come back at once."""

LONGEST_RETRY_AFTER_SECONDS = 60
"""Older SDKs take more than this for a mistake and come back within seconds."""

Fields = Sequence[tuple[bytes, bytes]]


_INVALID = "invalid_request_error"
_SERVER = "server_error"

SHAPES: dict[Reason, Shape] = {
    Reason.BAD_REQUEST: Shape(400, _INVALID),
    Reason.NEVER_FITS: Shape(400, _INVALID),
    Reason.UNAUTHORIZED: Shape(401, "authentication_error"),
    Reason.UNKNOWN_PATH: Shape(404, _INVALID),
    Reason.METHOD_NOT_ALLOWED: Shape(405, _INVALID),
    Reason.REQUEST_TIMEOUT: Shape(408, _INVALID),
    Reason.FELL_BEHIND: Shape(408, _INVALID),
    Reason.KEY_BUSY: Shape(409, _INVALID, retry_after_seconds=1),
    Reason.BODY_TOO_LARGE: Shape(413, _INVALID),
    Reason.EXPECTATION_FAILED: Shape(417, _INVALID),
    Reason.KEY_CONFLICT: Shape(422, _INVALID),
    Reason.RATE_LIMIT_EXCEEDED: Shape(429, "requests", retry_after_seconds=1),
    Reason.SHED_LOW_PRIORITY: Shape(429, "overloaded", retry_after_seconds=1),
    Reason.HEAD_TOO_LARGE: Shape(431, _INVALID),
    Reason.METHOD_UNKNOWN: Shape(501, _INVALID),
    Reason.CODING_UNKNOWN: Shape(501, _INVALID),
    Reason.ENGINE_FAILED: Shape(502, _SERVER),
    Reason.OVERLOADED: Shape(503, _SERVER, retry_after_seconds=1),
    Reason.QUEUE_TIMEOUT: Shape(503, _SERVER, retry_after_seconds=1),
    Reason.RETRY_BUDGET_EXHAUSTED: Shape(503, _SERVER, retry_after_seconds=1, hopeless=True),
    Reason.DRAINING: Shape(503, _SERVER, retry_after_seconds=1),
    Reason.ENGINE_UNAVAILABLE: Shape(503, _SERVER, retry_after_seconds=1),
    Reason.ENGINE_TIMEOUT: Shape(504, _SERVER),
    Reason.VERSION_NOT_SUPPORTED: Shape(505, _INVALID),
}

PHRASES = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    417: "Expectation Failed",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}

_ANTHROPIC_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class Refused(Exception):  # noqa: N818 - as often a decision that is returned as an error that is raised
    """A request the limiter answers itself.

    Attributes:
        reason: Which row of the table.
        message: One or two sentences for the person who reads the error.
        allow: The methods allowed on this path, for 405.
        status: The HTTP status it is answered with.
        kind: OpenAI's `error.type`.
        retry_after_seconds: When to try again, not before and with jitter after; None when that cannot help.
        fields: Further headers of the answer.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        allow: tuple[str, ...] = (),
        status: int | None = None,
        kind: str | None = None,
        retry_after_seconds: float | None = None,
        fields: Fields = (),
    ) -> None:
        super().__init__(message)
        shape = SHAPES[reason]
        self.reason = reason
        self.message = message
        self.allow = allow
        self.status = shape.status if status is None else status
        self.kind = shape.kind if kind is None else kind
        self.retry_after_seconds = shape.retry_after_seconds if retry_after_seconds is None else retry_after_seconds
        self.fields = fields


def dialect_of(path: str) -> Dialect:
    """Return whose error shape a client of this path expects."""
    return Dialect.ANTHROPIC if path == "/v1/messages" or path.startswith("/v1/messages/") else Dialect.OPENAI


def error_object(refused: Refused, dialect: Dialect) -> bytes:
    """Return the JSON error body."""
    status = refused.status
    if dialect is Dialect.ANTHROPIC:
        kind = _ANTHROPIC_KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")
        body: dict[str, object] = {"type": "error", "error": {"type": kind, "message": refused.message}}
    else:
        error = {"message": refused.message, "type": refused.kind, "param": None, "code": str(refused.reason)}
        body = {"error": error}
    return json.dumps(body).encode()


def stream_error(refused: Refused, dialect: Dialect) -> bytes:
    """Return the error as a server-sent event, for a stream that has already begun."""
    event = b"event: error\n" if dialect is Dialect.ANTHROPIC else b""
    return event + b"data: " + error_object(refused, dialect) + b"\n\n"


def refusal_headers(refused: Refused, *, jitter: float) -> list[tuple[bytes, bytes]]:
    """Return the headers that go with a refusal; `jitter` is a random number in 0..1."""
    headers = [(b"Content-Type", b"application/json"), (b"x-penstock-reason", str(refused.reason).encode())]
    if refused.retry_after_seconds is not None:
        # Only ever later than the truth: who comes at the time that was told is not refused for coming too soon.
        seconds = max(refused.retry_after_seconds, 1.0) * (1 + RETRY_SPREAD * jitter)
        seconds = min(seconds, LONGEST_RETRY_AFTER_SECONDS)
        headers.append((b"Retry-After", b"%d" % math.ceil(seconds)))
        headers.append((b"retry-after-ms", b"%d" % math.ceil(seconds * 1000)))
    too_soon = (
        refused.retry_after_seconds or 0
    ) > LONGEST_RETRY_AFTER_SECONDS  # what is told: a quota has not room then
    if SHAPES[refused.reason].hopeless or (too_soon and refused.reason is Reason.RATE_LIMIT_EXCEEDED):
        headers.append((b"x-should-retry", b"false"))
    headers += refused.fields
    if refused.allow:
        headers.append((b"Allow", ", ".join(refused.allow).encode()))
    return headers
