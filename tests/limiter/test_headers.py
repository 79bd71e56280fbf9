"""Headers: what ends at the limiter and what must not be lost."""

from __future__ import annotations

import pytest

from penstock.limiter.head import parse_request, parse_response
from penstock.limiter.headers import client_head, engine_head, request_id


def sent(*lines: str, method: str = "POST", body_bytes: int = 3) -> str:
    raw = "\r\n".join([f"{method} /v1/completions HTTP/1.1", "Host: demo", *lines, "", ""]).encode()
    return engine_head(
        parse_request(raw), target=b"/t", host=b"127.0.0.1:8001", attempt_id=b"fresh", body_bytes=body_bytes
    ).decode()


@pytest.mark.parametrize(
    "line",
    [
        "Authorization: Bearer secret",
        "X-Api-Key: secret",
        "Api-Key: secret",
        "Proxy-Authorization: secret",
        "X-Vllm-Priority: -9",
        "X-data-parallel-rank: 1",
        "X-Session-ID: a",
        "X-Conversation-Id: a",
        "X-Request-Id: mine",
        "x-penstock-drain-token: a",
        "x-penstock-tenant: a",
        "Connection: keep-alive",
        "Keep-Alive: timeout=5",
        "Proxy-Connection: close",
        "TE: trailers",
        "Trailer: x",
        "Upgrade: h2c",
        "Expect: 100-continue",
    ],
)
def test_what_must_not_reach_the_engine_does_not(line: str) -> None:
    name, value = line.split(": ")
    head = sent(line)
    assert f"{name.lower()}:" not in head.lower().replace("x-request-id: fresh", "")
    assert f": {value}\r\n" not in head


def test_the_engine_gets_its_own_host_length_and_a_fresh_id() -> None:
    head = sent("Content-Length: 3", "Content-Type: application/json")
    assert head.startswith("POST /t HTTP/1.1\r\nHost: 127.0.0.1:8001\r\n")
    assert head.count("Host:") == 1
    assert head.count("Content-Length: 3\r\n") == 1
    assert "Content-Type: application/json\r\n" in head
    assert head.endswith("X-Request-Id: fresh\r\n\r\n")


def test_chunked_becomes_a_length() -> None:
    head = sent("Transfer-Encoding: chunked", body_bytes=7)
    assert "Transfer-Encoding" not in head
    assert "Content-Length: 7\r\n" in head


def test_a_get_without_body_has_no_length() -> None:
    assert "Content-Length" not in sent(method="GET", body_bytes=0)


def test_named_headers_are_dropped_but_not_those_that_matter() -> None:
    head = sent("Connection: X-Hop, Host, Content-Length, Content-Type", "X-Hop: a", "Content-Type: application/json")
    assert "X-Hop" not in head
    assert "Content-Type: application/json" in head
    assert "Content-Length: 3" in head
    assert "Host: 127.0.0.1:8001" in head


@pytest.mark.parametrize(
    ("given", "shown"),
    [("abc-1", b"abc-1"), ("a b", None), ("a" * 129, None), ("<script>", None), ("", None)],
)
def test_a_well_formed_client_id_is_kept(given: str, shown: bytes | None) -> None:
    raw = f"GET / HTTP/1.1\r\nHost: x\r\nX-Request-Id: {given}\r\n\r\n".encode()
    assert request_id(parse_request(raw)) == shown


def answered(*lines: str, close: bool = False, unchunk: bool = False) -> str:
    raw = "\r\n".join(["HTTP/1.1 200 Fine", *lines, "", ""]).encode()
    return client_head(parse_response(raw, method=b"GET"), shown_id=b"id", close=close, unchunk=unchunk).decode()


def test_the_response_head_loses_only_what_belongs_to_the_connection() -> None:
    head = answered(
        "Server: x", "Connection: keep-alive, x-hop", "Keep-Alive: max=100", "X-Hop: 1", "Content-Length: 3"
    )
    assert head == "HTTP/1.1 200 Fine\r\nServer: x\r\nContent-Length: 3\r\nX-Request-Id: id\r\n\r\n"


def test_chunks_stay_chunks_unless_the_client_knows_none() -> None:
    assert "Transfer-Encoding: chunked" in answered("Transfer-Encoding: chunked")
    assert "Transfer-Encoding" not in answered("Transfer-Encoding: chunked", unchunk=True)


def test_the_last_response_says_so() -> None:
    assert "Connection: close\r\n" in answered("Content-Length: 0", close=True)


def test_the_engine_cannot_drop_the_length_by_naming_it() -> None:
    assert "Content-Length: 3" in answered("Connection: content-length", "Content-Length: 3")


def test_a_repeated_length_becomes_one() -> None:
    assert answered("Content-Length: 3", "Content-Length: 3").count("Content-Length") == 1
