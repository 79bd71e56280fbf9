"""A client that can leave at any moment, which the official ones cannot while they wait for an answer's head."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from typing import Any

API_PORT = 8000
TIMEOUT_SECONDS = 120


class Caller:
    """Asks one replica for one completion, and reads it as it comes in a thread of its own.

    Attributes:
        status: Status of the answer; None before there is one.
        tokens: Chunks of text that have come of a stream.
        finish: Why the answer ended, in the engine's words; empty before, and for ever when it is cut.
        over: Whether nothing more will come.
    """

    def __init__(self, pod: Any, *, model: str, prompt: str, tokens: int, key: str, stream: bool = True) -> None:
        """Send the request.

        Args:
            pod: The replica.
            model: What the request names.
            prompt: What it asks.
            tokens: Length of the answer.
            key: The caller's API key.
            stream: Whether the answer is to come as it is made, or whole.
        """
        self.status: int | None = None
        self.tokens = 0
        self.finish = ""
        self.over = False
        self._connection = http.client.HTTPConnection(pod.status.pod_ip, API_PORT, timeout=TIMEOUT_SECONDS)
        body = {"model": model, "prompt": prompt, "max_tokens": tokens, "stream": stream, "ignore_eos": True}
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._connection.request("POST", "/v1/completions", json.dumps(body), headers)
        self._socket = self._connection.sock
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """End the connection now, whatever is still to come; harmless after the end."""
        with contextlib.suppress(OSError):  # it may have ended in this moment
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _read(self) -> None:
        try:
            answer = self._connection.getresponse()
            self.status = answer.status
            for line in answer:
                if line.startswith(b"data: {"):
                    choice = json.loads(line.removeprefix(b"data: "))["choices"][0]
                    self.tokens += 1
                    self.finish = choice["finish_reason"] or ""
        except (OSError, http.client.HTTPException):
            pass  # left, or cut: `finish` stays empty
        finally:
            self.over = True
            self._connection.close()
