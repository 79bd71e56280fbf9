"""Refusals: every reason has a row, and both dialects get their own shape."""

from __future__ import annotations

import json

import pytest

from penstock.limiter.refusal import (
    PHRASES,
    SHAPES,
    Dialect,
    Reason,
    Refused,
    dialect_of,
    error_object,
    refusal_headers,
    stream_error,
)

SERVERS_FAULT = {
    Reason.OVERLOADED,
    Reason.QUEUE_TIMEOUT,
    Reason.RETRY_BUDGET_EXHAUSTED,
    Reason.DRAINING,
    Reason.ENGINE_UNAVAILABLE,
    Reason.ENGINE_FAILED,
    Reason.ENGINE_TIMEOUT,
}


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_status_phrase_and_error_in_both_dialects(reason: Reason) -> None:
    refused = Refused(reason, "why")
    assert refused.status in PHRASES
    assert (SHAPES[reason].kind == "server_error") == (reason in SERVERS_FAULT)
    error = json.loads(error_object(refused, Dialect.OPENAI))["error"]
    assert error == {"message": "why", "type": SHAPES[reason].kind, "param": None, "code": str(reason)}
    body = json.loads(error_object(refused, Dialect.ANTHROPIC))
    assert body["type"] == "error"
    assert body["error"]["message"] == "why"
    assert body["error"]["type"].endswith("_error") or body["error"]["type"] == "request_too_large"


@pytest.mark.parametrize("reason", [reason for reason, shape in SHAPES.items() if shape.retry_after_seconds])
def test_retry_times_agree_and_jitter_never_shortens_them(reason: Reason) -> None:
    for jitter in (0.0, 0.5, 1.0):
        headers = dict(refusal_headers(Refused(reason, "why"), jitter=jitter))
        seconds, milliseconds = int(headers[b"Retry-After"]), int(headers[b"retry-after-ms"])
        assert 1 <= seconds <= 60
        assert (seconds - 1) * 1000 < milliseconds <= seconds * 1000


def test_clients_that_know_whole_seconds_only_do_not_all_come_back_at_once() -> None:
    told = Refused(Reason.OVERLOADED, "why", retry_after_seconds=10.0)
    seconds = {int(dict(refusal_headers(told, jitter=number / 10))[b"Retry-After"]) for number in range(11)}
    assert min(seconds) == 10
    assert len(seconds) >= 5


@pytest.mark.parametrize("reason", [Reason.BAD_REQUEST, Reason.UNKNOWN_PATH, Reason.BODY_TOO_LARGE])
def test_what_trying_again_cannot_help_has_no_retry_after(reason: Reason) -> None:
    assert b"Retry-After" not in dict(refusal_headers(Refused(reason, "why"), jitter=0))


@pytest.mark.parametrize(
    ("reason", "status"),
    [(Reason.DRAINING, 503), (Reason.ENGINE_UNAVAILABLE, 503), (Reason.ENGINE_FAILED, 502), (Reason.OVERLOADED, 503)],
)
def test_load_and_absence_are_5xx(reason: Reason, status: int) -> None:
    assert SHAPES[reason].status == status


def test_an_error_in_a_stream_is_one_whole_event() -> None:
    event = stream_error(Refused(Reason.ENGINE_FAILED, "line\nbreak"), Dialect.OPENAI)
    assert event.startswith(b"data: {")
    assert event.count(b"\n") == 2
    assert json.loads(event[6:])["error"]["code"] == "engine_failed"
    assert stream_error(Refused(Reason.ENGINE_FAILED, "x"), Dialect.ANTHROPIC).startswith(b"event: error\ndata: {")


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/messages", Dialect.ANTHROPIC),
        ("/v1/messages/count_tokens", Dialect.ANTHROPIC),
        ("/v1/messagesx", Dialect.OPENAI),
        ("/v1/chat/completions", Dialect.OPENAI),
    ],
)
def test_the_path_decides_the_dialect(path: str, dialect: Dialect) -> None:
    assert dialect_of(path) is dialect
