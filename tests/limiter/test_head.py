"""Heads: what is accepted, what is refused, and that a second parser reads the accepted ones in the same way."""

from __future__ import annotations

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.limiter.head import (
    CHUNKED,
    HEAD_LIMIT_BYTES,
    UNTIL_CLOSE,
    ResponseError,
    early_fault,
    find_end,
    parse_request,
    parse_response,
)
from penstock.limiter.refusal import Refused


def post(*lines: str, first: str = "POST /v1/completions HTTP/1.1", host: bool = True) -> bytes:
    fields = ["Host: x"] if host else []
    return "\r\n".join([first, *fields, *lines, "", ""]).encode("latin-1")


REFUSED = {
    "two lengths": (post("Content-Length: 3", "Content-Length: 4"), 400),
    "two equal lengths": (post("Content-Length: 3", "Content-Length: 3"), 400),
    "a list of lengths": (post("Content-Length: 3, 3"), 400),
    "length with chunked": (post("Content-Length: 3", "Transfer-Encoding: chunked"), 400),
    "chunked with length": (post("Transfer-Encoding: chunked", "Content-Length: 3"), 400),
    "negative length": (post("Content-Length: -1"), 400),
    "length with plus": (post("Content-Length: +1"), 400),
    "length with underscore": (post("Content-Length: 1_0"), 400),
    "hexadecimal length": (post("Content-Length: 0x10"), 400),
    "empty length": (post("Content-Length:"), 400),
    "overlong length": (post("Content-Length: " + "1" * 16), 400),
    "non-ASCII digits": (post("Content-Length: ²"), 400),
    "two codings": (post("Transfer-Encoding: gzip, chunked"), 501),
    "chunked twice": (post("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), 400),
    "unknown coding": (post("Transfer-Encoding: xchunked"), 501),
    "identity coding": (post("Transfer-Encoding: identity"), 501),
    "coding in HTTP/1.0": (post("Transfer-Encoding: chunked", first="POST / HTTP/1.0"), 400),
    "folded line": (post("X-A: a\r\n b"), 400),
    "blank before colon": (post("Content-Length : 3"), 400),
    "blank before name": (post(" X: 3"), 400),
    "no colon": (post("nonsense"), 400),
    "empty name": (post(": a"), 400),
    "NUL in value": (post("X: a\x00b"), 400),
    "control byte in value": (post("X: a\x1bb"), 400),
    "DEL in value": (post("X: a\x7fb"), 400),
    "control byte in name": (post("X\x01: a"), 400),
    "bare CR in value": (post("X: a\rContent-Length: 3"), 400),
    "bare LF in value": (post("X: a\nContent-Length: 3"), 400),
    "non-ASCII name": (post("Ä: a"), 400),
    "no host": (post(host=False), 400),
    "two hosts": (post("Host: y"), 400),
    "malformed host": (post("Host: a/b", host=False), 400),
    "unknown method": (post(first="BREW / HTTP/1.1"), 501),
    "connect": (post(first="CONNECT a:80 HTTP/1.1"), 501),
    "trace": (post(first="TRACE / HTTP/1.1"), 501),
    "HTTP/2": (post(first="PRI * HTTP/2.0"), 505),
    "HTTP/0.9": (post(first="GET / HTTP/0.9"), 505),
    "HTTP/1.2": (post(first="GET / HTTP/1.2"), 505),
    "no version": (post(first="GET /"), 400),
    "two blanks": (post(first="GET  / HTTP/1.1"), 400),
    "tab in request line": (post(first="GET\t/ HTTP/1.1"), 400),
    "blank in target": (post(first="GET /a b HTTP/1.1"), 400),
    "relative target": (post(first="GET v1/models HTTP/1.1"), 400),
    "asterisk": (post(first="OPTIONS * HTTP/1.1"), 400),
    "fragment": (post(first="GET /a#b HTTP/1.1"), 400),
    "foreign scheme": (post(first="GET ftp://a/b HTTP/1.1"), 400),
    "non-ASCII target": (post(first="GET /ä HTTP/1.1"), 400),
    "unknown expectation": (post("Expect: 200-maybe"), 417),
    "too many fields": (post(*(f"X-{n}: a" for n in range(200))), 431),
    "too large": (post("X: " + "a" * HEAD_LIMIT_BYTES), 431),
}


@pytest.mark.parametrize(("head", "status"), REFUSED.values(), ids=REFUSED.keys())
def test_a_head_that_could_be_read_in_two_ways_is_refused(head: bytes, status: int) -> None:
    with pytest.raises(Refused) as refused:
        parse_request(head)
    assert refused.value.status == status


ACCEPTED = {
    "length": (post("Content-Length: 12"), 12),
    "no body": (post(), 0),
    "chunked": (post("Transfer-Encoding: Chunked"), CHUNKED),
    "blanks around values": (post("Content-Length: \t 12 \t"), 12),
    "empty value": (post("X:"), 0),
    "UTF-8 value": (post("X: ü"), 0),
    "absolute form": (post(first="GET http://a:80/v1/models HTTP/1.1"), 0),
    "HTTP/1.0": (post(first="GET / HTTP/1.0"), 0),
    "HTTP/1.0 without host": (post(first="GET / HTTP/1.0", host=False), 0),
}


@pytest.mark.parametrize(("head", "length"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_a_regular_head_is_accepted(head: bytes, length: int) -> None:
    assert parse_request(head).length == length


def test_absolute_form_becomes_origin_form() -> None:
    assert parse_request(post(first="GET HTTP://a HTTP/1.1")).target == b"/"
    assert parse_request(post(first="GET http://a/b?c HTTP/1.1")).target == b"/b?c"


@pytest.mark.parametrize(
    ("first", "line", "keep"),
    [
        ("GET / HTTP/1.1", "X: a", True),
        ("GET / HTTP/1.1", "Connection: foo, Close", False),
        ("GET / HTTP/1.0", "X: a", False),
    ],
)
def test_keep_alive_follows_version_and_connection(first: str, line: str, keep: bool) -> None:
    assert parse_request(post(line, first=first)).keep_alive is keep


class Judge:
    """What llhttp makes of a head."""

    def __init__(self, head: bytes) -> None:
        self.fields: list[tuple[bytes, bytes]] = []
        self.url = b""
        parser = httptools.HttpRequestParser(self)
        parser.feed_data(head)
        self.method = parser.get_method()

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.lower(), value))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["Content-Length", "X-A", "Accept", "Transfer-Encoding", "Connection", "x_b", "Foo~"]),
            st.sampled_from([":", ": ", ":\t", " :", ":\r\n ", ":\n"]),
            st.one_of(
                st.sampled_from(["3", "chunked", "close", "keep-alive", "3, 3", "gzip, chunked"]),
                st.text(st.characters(max_codepoint=255), max_size=6),
            ),
        ),
        max_size=4,
    )
)
def test_whatever_is_accepted_is_read_in_the_same_way_by_another_parser(fields: list[tuple[str, str, str]]) -> None:
    head = post(*(name + colon + value for name, colon, value in fields))
    try:
        ours = parse_request(head[: find_end(head)])
    except Refused:
        return
    theirs = Judge(head[: find_end(head)])
    assert theirs.method == ours.method
    assert theirs.url == ours.target
    assert theirs.fields == [(key, value) for key, _, value in ours.fields]


@given(st.sampled_from([*(head for head, _ in ACCEPTED.values())]), st.data())
def test_no_prefix_of_an_accepted_head_is_refused(head: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(head) - 1))
    early_fault(head[:cut])


@pytest.mark.parametrize(
    "start",
    [b"\x16\x03\x01\x02\x00", b"hello", b"GET / HTTP/1.1\nHost", b"{", b"GET / HTTP/1.1\r\nA: \x00", b"GET / JUNK\r\n"],
    ids=["TLS", "words", "bare LF", "JSON", "NUL", "version"],
)
def test_bytes_that_are_no_http_are_refused_before_they_are_complete(start: bytes) -> None:
    with pytest.raises(Refused):
        early_fault(start)


RESPONSES = {
    "length": (b"Content-Length: 3", 200, b"POST", 3),
    "chunked": (b"Transfer-Encoding: chunked", 200, b"POST", CHUNKED),
    "until close": (b"X: a", 200, b"POST", UNTIL_CLOSE),
    "head": (b"Content-Length: 3", 200, b"HEAD", 0),
    "no content": (b"X: a", 204, b"POST", 0),
    "not modified": (b"Content-Length: 3", 304, b"GET", 0),
    "repeated length": (b"Content-Length: 3\r\nContent-Length: 3", 200, b"GET", 3),
}


@pytest.mark.parametrize(("field", "status", "method", "length"), RESPONSES.values(), ids=RESPONSES.keys())
def test_the_length_of_a_response_follows_the_standard(field: bytes, status: int, method: bytes, length: int) -> None:
    head = b"HTTP/1.1 %d OK\r\n%b\r\n\r\n" % (status, field)
    assert parse_response(head, method=method).length == length


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
    ],
)
def test_an_ambiguous_response_is_an_engine_failure(head: bytes) -> None:
    with pytest.raises(ResponseError):
        parse_response(head, method=b"GET")


@pytest.mark.parametrize("field", [b"Content-Length: x", b"Content-Length: 1\r\nContent-Length: 2"])
@pytest.mark.parametrize(("status", "method"), [(200, b"HEAD"), (204, b"POST"), (304, b"GET")])
def test_a_length_that_is_none_is_not_passed_on_where_no_body_follows(field: bytes, status: int, method: bytes) -> None:
    with pytest.raises(ResponseError):
        parse_response(b"HTTP/1.1 %d OK\r\n%b\r\n\r\n" % (status, field), method=method)
