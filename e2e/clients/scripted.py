"""A tiny engine for what the stand-in for vLLM does not do: it closes without an answer, or sends an error in a stream.

It lives in this process, behind a limiter like any engine. Each `Trouble` strikes once; then answers are whole.
"""

from __future__ import annotations

import json
import threading
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from e2e.clients.client import MESSAGES

ENGINE_ERROR = {"message": "The engine has lost its memory.", "type": "InternalServerError", "code": 500}


class Trouble(StrEnum):
    """What the next request meets."""

    NONE = "none"
    CLOSE = "close"
    """The connection is closed instead of an answer."""
    ERROR_IN_STREAM = "error in stream"
    """A stream ends with an error object, as vLLM sends it."""


class ScriptedEngine:
    """The engine; a context manager.

    Attributes:
        next: What the next request meets.
        port: Where it listens on loopback.
    """

    def __init__(self) -> None:
        self.next = Trouble.NONE
        self.port = 0

    def __enter__(self) -> Self:
        engine = self

        class Handler(_Handler):
            def do_POST(self) -> None:
                trouble, engine.next = engine.next, Trouble.NONE
                self.answer(trouble)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False  # so that closing it waits for the limiter's connections to end
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Say nothing: the tests say what came."""

    def do_GET(self) -> None:
        self._send(b"vllm:num_requests_running 0\n", "text/plain")

    def answer(self, trouble: Trouble) -> None:
        """Answer a request for text."""
        asked: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if trouble is Trouble.CLOSE:
            self.close_connection = True
        elif trouble is Trouble.ERROR_IN_STREAM:
            self._stream(_anthropic_error() if self.path == MESSAGES else _openai_error(asked))
        else:
            answer = _message(asked) if self.path == MESSAGES else _completion(asked)
            self._send(json.dumps(answer).encode(), "application/json")

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, events: list[bytes]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
        self.wfile.write(b"0\r\n\r\n")


def _completion(asked: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": "Well."}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": asked["model"]}
    return {**head, "choices": [choice], "usage": usage}


def _message(asked: dict[str, Any]) -> dict[str, Any]:
    head = {"id": "msg-1", "type": "message", "role": "assistant", "model": asked["model"]}
    usage = {"input_tokens": 3, "output_tokens": 1}
    return {**head, "content": [{"type": "text", "text": "Well."}], "stop_reason": "end_turn", "usage": usage}


def _openai_error(asked: dict[str, Any]) -> list[bytes]:
    choice = {"index": 0, "delta": {"content": "We"}, "finish_reason": None}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": asked["model"]}
    said = (json.dumps({**head, "choices": [choice]}), json.dumps({"error": ENGINE_ERROR}), "[DONE]")
    return [f"data: {one}\n\n".encode() for one in said]


def _anthropic_error() -> list[bytes]:
    said = (
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "We"}},
        {"type": "error", "error": {"type": ENGINE_ERROR["type"], "message": ENGINE_ERROR["message"]}},
    )
    return [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in said]
