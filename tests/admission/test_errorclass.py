"""Error classes: a busy engine is not a broken one, and a wrong request is nobody's fault but its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.admission.errorclass import EngineError, ErrorClass, classify, error_of

RECORDED = Path(__file__).parents[1] / "limiter" / "fixtures"

TRANSIENT, PERMANENT = ErrorClass.TRANSIENT, ErrorClass.PERMANENT
BACKPRESSURE, FATAL = ErrorClass.BACKPRESSURE, ErrorClass.FATAL


@pytest.mark.parametrize(
    ("status", "kind", "message", "means"),
    [
        pytest.param(400, "BadRequestError", "max_tokens=4000 cannot be greater", PERMANENT, id="vllm wrong value"),
        pytest.param(400, "exceed_context_size_error", "exceeds the context", PERMANENT, id="llama context"),
        pytest.param(401, "", "Unauthorized", PERMANENT, id="no key"),
        pytest.param(404, "NotFoundError", "The model `x` does not exist", PERMANENT, id="unknown model"),
        pytest.param(413, "", "", PERMANENT, id="too large"),
        pytest.param(501, "not_supported_error", "", PERMANENT, id="llama switched off"),
        pytest.param(408, "", "", TRANSIENT, id="time-out"),
        pytest.param(429, "", "", BACKPRESSURE, id="rate"),
        pytest.param(529, "overloaded_error", "", BACKPRESSURE, id="anthropic overloaded"),
        pytest.param(
            503,
            "Service Unavailable",
            "The engine is currently busy and cannot accept new requests.",
            BACKPRESSURE,
            id="vllm queue full",
        ),
        pytest.param(503, "unavailable_error", "no slot available", BACKPRESSURE, id="llama slots busy"),
        pytest.param(
            500, "server_error", "Context size has been exceeded.", BACKPRESSURE, id="llama shared cache full"
        ),
        pytest.param(503, "unavailable_error", "Loading model", TRANSIENT, id="llama loading"),
        pytest.param(503, "", "", TRANSIENT, id="503 that says nothing"),
        pytest.param(500, "InternalServerError", "oops", TRANSIENT, id="vllm failed"),
        pytest.param(500, "EngineDeadError", "EngineCore encountered an issue", FATAL, id="vllm engine dead"),
        pytest.param(500, "", "cannot schedule new futures after shutdown", FATAL, id="vllm stopping"),
        pytest.param(400, "", "why is my EngineCore so slow", PERMANENT, id="words of a client in its own error"),
        pytest.param(0, "", "", TRANSIENT, id="connection broke"),
        pytest.param(0, "invalid_request_error", "", PERMANENT, id="wrong request inside a stream"),
        pytest.param(0, "rate_limit_error", "", BACKPRESSURE, id="rate inside a stream"),
    ],
)
def test_status_type_and_message_tell_the_class(status: int, kind: str, message: str, means: ErrorClass) -> None:
    assert classify(status, EngineError(kind, message)) is means


def test_an_error_inside_a_stream_may_name_its_own_status() -> None:
    assert classify(0, EngineError(status=400)) is PERMANENT
    assert classify(0, EngineError("Service Unavailable", "currently busy", 503)) is BACKPRESSURE
    assert classify(500) is TRANSIENT


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("Unauthorized", EngineError(message="Unauthorized")),
        ({"message": "m", "type": "t", "code": 400}, EngineError("t", "m", 400)),
        ({"message": 7, "type": None, "code": "rate_limit_exceeded"}, EngineError()),
        (None, None),
        ({}, None),
    ],
)
def test_an_error_is_an_object_or_a_text(value: object, error: EngineError | None) -> None:
    assert error_of(value) == error


def test_a_long_message_is_cut() -> None:
    error = error_of({"message": "x" * 100_000})
    assert error is not None
    assert len(error.message) == 500


@pytest.mark.parametrize(("recorded", "means"), [("vllm-503-queue-full", BACKPRESSURE), ("llama-400-json", PERMANENT)])
def test_recorded_answers_are_read_as_what_they_are(recorded: str, means: ErrorClass) -> None:
    head, _, body = (RECORDED / f"{recorded}.http").read_bytes().partition(b"\r\n\r\n")
    error = error_of(json.loads(body).get("error"))
    assert error is not None
    assert error.message
    assert classify(int(head[9:12]), error) is means
