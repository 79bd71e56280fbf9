"""What an engine's error means for whoever has to go on: one table for the limiter, its breaker and the client.

| class | the same request later | counts against the engine's health |
|---|---|---|
| transient | may pass | yes |
| permanent | fails again: the request is at fault | no |
| backpressure | passes when the engine is less busy | no |
| fatal | fails until the engine was restarted | yes |

The status alone does not tell: engines answer 503 while they load, when their queue is full, and when they are being
rescaled. So a row may ask for words in the error's type or message as well. The first row that fits decides; what no
row knows is told by the status's hundred. A busy engine is never a broken one: no row that names a queue, a slot or a
rate counts as a failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

_MESSAGE_LIMIT = 500


class ErrorClass(StrEnum):
    """How to go on after an error."""

    TRANSIENT = "transient"
    """The engine failed; the same request may pass later."""

    PERMANENT = "permanent"
    """The request is wrong and will always be."""

    BACKPRESSURE = "backpressure"
    """The engine is busy: wait until it is less so, do not hammer, do not hold it for broken."""

    FATAL = "fatal"
    """The engine is beyond help and must be restarted."""


@dataclass(frozen=True, slots=True)
class EngineError:
    """An error as an engine describes it.

    Attributes:
        kind: Its type, such as `invalid_request_error`; empty when the engine names none.
        message: Its text, cut to a few hundred characters; it may quote the request, so it belongs into no metric.
        status: The status that the error itself names, 0 when none: an error inside a stream has no other.
    """

    kind: str = ""
    message: str = ""
    status: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        means: The class.
        statuses: HTTP statuses it is for; empty for all.
        words: Words in type or message, in lower case, one of which must occur; empty when the status is enough.
    """

    means: ErrorClass
    statuses: frozenset[int] = frozenset()
    words: tuple[str, ...] = ()

    def fits(self, status: int, text: str) -> bool:
        """Say whether the row is about such an error."""
        return (not self.statuses or status in self.statuses) and (
            not self.words or any(word in text for word in self.words)
        )


_FAILED = frozenset({0, 500, 502, 503, 504})
"""Statuses of an engine in trouble; 0 is an error in a stream that names none."""

ROWS: tuple[Row, ...] = (
    # vLLM's engine process has died, or cannot go on; the server in front of it still answers
    Row(
        ErrorClass.FATAL,
        _FAILED,
        (
            "enginedeaderror",
            "engine core",
            "enginecore",
            "background loop has errored",
            "cannot schedule new futures",
            "cuda error",
            "hip error",
        ),
    ),
    # full: of vLLM's --max-num-queued-*, of llama-server's slots, of its shared cache
    Row(ErrorClass.BACKPRESSURE, frozenset({429, 529})),
    Row(
        ErrorClass.BACKPRESSURE,
        _FAILED,
        (
            "currently busy",
            "cannot accept new requests",
            "too many",
            "queue is full",
            "queue full",
            "no slot",
            "slots are busy",
            "slot unavailable",
            "slot is not available",
            "overloaded",
            "rate_limit",
            "context size has been exceeded",
        ),
    ),
    # not there yet, or for a moment
    Row(ErrorClass.TRANSIENT, frozenset({408, 409, 425})),
    Row(ErrorClass.PERMANENT, frozenset({501, 505})),
    # inside a stream, where only the words tell
    Row(
        ErrorClass.PERMANENT,
        frozenset({0}),
        ("invalid_request", "badrequest", "bad request", "exceed_context_size", "notfounderror", "not_found"),
    ),
)


def classify(status: int, error: EngineError | None = None) -> ErrorClass:
    """Return what an error means.

    Args:
        status: HTTP status, at least 400; 0 for an error inside a stream or a connection that broke.
        error: What the engine says about it.
    """
    if status == 0 and error is not None:
        status = error.status
    text = f"{error.kind} {error.message}".lower() if error is not None else ""
    for row in ROWS:
        if row.fits(status, text):
            return row.means
    return ErrorClass.PERMANENT if 400 <= status < 500 else ErrorClass.TRANSIENT


def error_of(value: object) -> EngineError | None:
    """Return the error in a decoded body's `error`: an object in most answers, a text in some of vLLM's."""
    if not value:
        return None
    if not isinstance(value, dict):
        return EngineError(message=_text(value))
    code = value.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else 0
    return EngineError(kind=_text(value.get("type")), message=_text(value.get("message")), status=status)


def _text(value: object) -> str:
    return value[:_MESSAGE_LIMIT] if isinstance(value, str) else ""
