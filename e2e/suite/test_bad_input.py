"""Bad input to a limiter on the cluster: the right status or a close, no traceback, nothing in flight afterwards."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from e2e.suite.backends import Backend, wait_until

pytestmark = pytest.mark.cluster

CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nHost: e2e\r\nContent-Type: application/json\r\n"

CASES: dict[str, tuple[bytes, set[int | None]]] = {
    "bytes that are no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n", {400}),
    "a header of 1 MB": (b"GET /v1/models HTTP/1.1\r\nHost: e2e\r\nX-Big: " + b"a" * 1_000_000 + b"\r\n\r\n", {431}),
    "two lengths": (CHAT + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", {400}),
    "length and chunked": (CHAT + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
    "a chunk size that is none": (CHAT + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n", {400}),
    "a bare line feed": (b"GET /v1/models HTTP/1.1\nHost: e2e\n\n", {400}),
    "a NUL in a header": (b"GET /v1/models HTTP/1.1\r\nHost: e2e\r\nX: a\x00b\r\n\r\n", {400}),
    "a path outside the list": (b"GET /metrics HTTP/1.1\r\nHost: e2e\r\n\r\n", {404}),
    "an escaped path outside the list": (b"GET /v1/..%2fmetrics HTTP/1.1\r\nHost: e2e\r\n\r\n", {400, 404}),
    "a body that is too large": (CHAT + b"Content-Length: 99999999999\r\n\r\n", {413}),
    "a body that is no JSON": (CHAT + b"Content-Length: 8\r\n\r\nnot json", {400, 500}),
    "a body cut short": (CHAT + b"Content-Length: 100\r\n\r\n{", {None, 400}),
}


@pytest.fixture(scope="module")
def serving(backend: Backend) -> Backend:
    """Return the backend once it serves; one replica makes the count in flight easy to read."""
    backend.spec["replicas"] = 1
    backend.apply()
    backend.wait_ready()
    return backend


def say_bytes(serving: Backend, sent: bytes) -> int | None:
    """Send these bytes, close our side, and return the final status that comes back, None for a plain close."""
    with socket.create_connection((serving.pods()[0].status.pod_ip, 8000), timeout=20) as connection:
        try:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the limiter may answer and close before it has read a megabyte
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    while answer.startswith(b"HTTP/1.1 1"):
        answer = answer.partition(b"\r\n\r\n")[2]
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else None


@pytest.mark.parametrize("case", CASES)
def test_bad_input_gets_its_status(serving: Backend, case: str) -> None:
    """Each kind of bad input gets the status that names it, or a close where no answer makes sense."""
    sent, statuses = CASES[case]
    assert say_bytes(serving, sent) in statuses


def test_a_client_that_leaves_frees_its_place(serving: Backend) -> None:
    """Streaming and non-streaming clients that vanish are out of the count at once."""
    for stream in (b"true", b"false"):
        body = b'{"model": "%s", "max_tokens": 500, "stream": %s, "messages": [{"role": "user", "content": "Hi"}]}'
        body %= (serving.model.encode(), stream)
        with socket.create_connection((serving.pods()[0].status.pod_ip, 8000), timeout=20) as connection:
            connection.sendall(CHAT + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            wait_until(lambda: serving.in_flight() == 1, timeout=10, what=lambda: "1 in flight")
        wait_until(lambda: serving.in_flight() == 0, timeout=5, what=lambda: f"0 in flight, is {serving.in_flight()}")


def test_nothing_is_in_flight_and_nothing_was_a_surprise(serving: Backend, kubectl: Callable[..., Any]) -> None:
    """After all of it the limiter counts zero, has not restarted, and has printed no traceback."""
    wait_until(lambda: serving.in_flight() == 0, timeout=10, what=lambda: "0 in flight")
    (pod,) = serving.pods()
    assert [status.restart_count for status in pod.status.init_container_statuses] == [0]
    assert "Traceback" not in kubectl("logs", pod.metadata.name, "-c", "limiter").stdout
