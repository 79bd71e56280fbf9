"""Message heads: strict reading of the part before the body.

Theory of operation. A proxy is safe when it and the server behind it can only read a message in one way. So a head is
accepted only when every byte fits a narrow grammar (CRLF line ends, token names, no control bytes, no folding), and
the body's length is stated once. What is refused here never reaches the engine, and what is accepted is written anew
by `headers`, never copied as a block.

The grammar is one regular expression over the whole head and one over its lines: a single reader, so nothing can be
split in one way and checked in another. `early_fault` looks at heads that are not complete yet, so that bytes that
are no HTTP are refused when they come and not when a timer ends.
"""

from __future__ import annotations

import re
from typing import NoReturn

import msgspec

from penstock.limiter.refusal import Reason, Refused

HEAD_LIMIT_BYTES = 64 * 1024
FIELD_LIMIT = 128
LENGTH_DIGITS = 15
METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})

CHUNKED = -1
UNTIL_CLOSE = -2

Fields = list[tuple[bytes, bytes, bytes]]
Values = dict[bytes, list[bytes]]
"""All values of each field, in their order, by its lower-case name."""

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_VALUE = rb"[\t\x20-\x7e\x80-\xff]*"
_FIELD_LINE = re.compile(rb"(" + _TOKEN + rb"):(" + _VALUE + rb")\r\n")
_FIELD_BLOCK = re.compile(rb"(?:" + _TOKEN + rb":" + _VALUE + rb"\r\n)*+")
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])\r\n")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?\r\n")
_ABSOLUTE = re.compile(rb"https?://([A-Za-z0-9.\-_~%:\[\]]+)(/.*)?", re.IGNORECASE)
_HOST = re.compile(rb"[A-Za-z0-9.\-_~%:\[\]]*")
_METHOD_START = re.compile(rb"[A-Z]{1,16}(?: |\Z)")
_NO_TOKENS: frozenset[bytes] = frozenset()
_FORBIDDEN = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r(?!\n|\Z)")


class RequestHead(msgspec.Struct):
    """A request's head after all checks.

    Attributes:
        method: Upper-case method.
        target: Path and query as the client wrote them, in origin form.
        minor: 0 or 1, of HTTP/1.x.
        fields: Lower-case name, name as written, value without surrounding blanks.
        values: The same by name: whoever looks for a field looks here.
        length: Body length in bytes, or `CHUNKED`.
        keep_alive: Whether the client wants another request on this connection.
        expects_continue: Whether the client waits for `100 Continue` before it sends the body.
        connection: Lower-case members of the `Connection` header.
    """

    method: bytes
    target: bytes
    minor: int
    fields: Fields
    values: Values
    length: int
    keep_alive: bool
    expects_continue: bool
    connection: frozenset[bytes]

    def value(self, name: bytes) -> bytes | None:
        """Return the first value of a field by its lower-case name."""
        values = self.values.get(name)
        return None if values is None else values[0]


class ResponseHead(msgspec.Struct):
    """A response's head.

    Attributes:
        status: Status code.
        reason: Reason phrase.
        fields, values: As in `RequestHead`.
        length: Body length in bytes, `CHUNKED` or `UNTIL_CLOSE`.
        keep_alive: Whether the engine keeps the connection open.
        connection: Lower-case members of the `Connection` header.
    """

    status: int
    reason: bytes
    fields: Fields
    values: Values
    length: int
    keep_alive: bool
    connection: frozenset[bytes]

    def value(self, name: bytes) -> bytes | None:
        """Return the first value of a field by its lower-case name."""
        values = self.values.get(name)
        return None if values is None else values[0]

    @property
    def is_event_stream(self) -> bool:
        """Whether the body is a stream of events."""
        values = self.values.get(b"content-type")
        return values is not None and values[0].lower().startswith(b"text/event-stream")


class ResponseError(Exception):
    """The engine's answer is not HTTP/1.x, or its length is ambiguous."""


def find_end(buffer: bytes | bytearray, start: int = 0) -> int:
    """Return the index after the empty line that ends a head, or -1. `start` is where the last search stopped."""
    index = buffer.find(b"\r\n\r\n", max(0, start - 3))
    return -1 if index < 0 else index + 4


def early_fault(buffer: bytes | bytearray, start: int = 0) -> None:
    """Check a head that is still incomplete.

    Raises:
        Refused: it can never become a valid head, whatever follows.
    """
    if len(buffer) > HEAD_LIMIT_BYTES:
        raise Refused(Reason.HEAD_TOO_LARGE, f"The request head is larger than {HEAD_LIMIT_BYTES} bytes.")
    if _FORBIDDEN.search(buffer, max(0, start - 1)):
        _bad("The request head has a control byte or a line end other than CR LF.")
    if not _METHOD_START.match(buffer):
        _bad("The connection did not begin with an HTTP request.")
    line_end = buffer.find(b"\r\n")
    if line_end >= 0 and start <= line_end + 2:
        _request_line(bytes(buffer[: line_end + 2]))


def parse_request(head: bytes) -> RequestHead:
    """Read a complete request head, including its final empty line.

    Raises:
        Refused: with the status that fits.
    """
    if len(head) > HEAD_LIMIT_BYTES:
        raise Refused(Reason.HEAD_TOO_LARGE, f"The request head is larger than {HEAD_LIMIT_BYTES} bytes.")
    line_end = head.index(b"\r\n") + 2
    method, target, minor = _request_line(head[:line_end])
    read = _fields(head, line_end)
    if read is None:
        _bad("A header line is malformed (blank before the colon, folded line, control byte or bad name).")
    fields, values = read
    if len(fields) > FIELD_LIMIT:
        raise Refused(Reason.HEAD_TOO_LARGE, f"The request has more than {FIELD_LIMIT} headers.")
    if not target.startswith(b"/") or b"#" in target:
        target = _origin_form(target)
    _check_host(values.get(b"host", []), minor)
    length = _request_length(values, minor)
    connection = _tokens(values) if b"connection" in values else _NO_TOKENS
    keep_alive = minor == 1 and b"close" not in connection
    expects_continue = minor == 1 and b"expect" in values and _expects_continue(values)
    return RequestHead(method, target, minor, fields, values, length, keep_alive, expects_continue, connection)


def parse_response(head: bytes, *, method: bytes) -> ResponseHead:
    """Read a complete response head; `method` is that of the request it answers.

    Raises:
        ResponseError: the bytes are no HTTP/1.x response or state their length in two ways.
    """
    match = _STATUS_LINE.match(head)
    read = _fields(head, match.end()) if match else None
    if match is None or read is None:
        raise ResponseError("the response head is malformed")
    fields, values = read
    minor, status = int(match[1]), int(match[2])
    connection = _tokens(values) if b"connection" in values else _NO_TOKENS
    keep_alive = b"close" not in connection if minor == 1 else b"keep-alive" in connection
    length = _response_length(values, status=status, method=method)
    keep_alive = keep_alive and length != UNTIL_CLOSE
    return ResponseHead(status, match[3] or b"", fields, values, length, keep_alive, connection)


def _request_line(line: bytes) -> tuple[bytes, bytes, int]:
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        _bad("The request line is malformed.")
    method, target, major, minor = match.groups()
    if major != b"1" or minor not in {b"0", b"1"}:
        raise Refused(Reason.VERSION_NOT_SUPPORTED, "Only HTTP/1.0 and HTTP/1.1 are spoken here.")
    if method not in METHODS:
        raise Refused(Reason.METHOD_UNKNOWN, "This request method is not known here.")
    return method, target, int(minor)


def _fields(head: bytes, start: int) -> tuple[Fields, Values] | None:
    """Return the fields in both forms, by one pass; None when a line is malformed."""
    end = len(head) - 2
    if not _FIELD_BLOCK.fullmatch(head, start, end):
        return None
    fields: Fields = []
    values: Values = {}
    for name, written in _FIELD_LINE.findall(head, start, end):
        key, value = name.lower(), written.strip(b" \t")
        fields.append((key, name, value))
        earlier = values.get(key)
        if earlier is None:
            values[key] = [value]
        else:
            earlier.append(value)
    return fields, values


def _origin_form(target: bytes) -> bytes:
    if target.startswith(b"/"):
        origin = target
    else:
        match = _ABSOLUTE.fullmatch(target)
        if match is None:
            _bad("The request target must be a path or an absolute http URL.")
        origin = match[2] or b"/"
    if b"#" in origin:
        _bad("The request target must not have a fragment.")
    return origin


def _check_host(hosts: list[bytes], minor: int) -> None:
    if len(hosts) > 1 or (minor == 1 and not hosts):
        _bad("An HTTP/1.1 request needs exactly one Host header.")
    if hosts and not _HOST.fullmatch(hosts[0]):
        _bad("The Host header is malformed.")


def _request_length(values: Values, minor: int) -> int:
    lengths = values.get(b"content-length")
    codings = values.get(b"transfer-encoding")
    if codings:
        if lengths:
            _bad("Content-Length and Transfer-Encoding must not be sent together.")
        if minor == 0:
            _bad("Transfer-Encoding is not allowed in HTTP/1.0.")
        if len(codings) > 1:
            _bad("Transfer-Encoding must be sent once.")
        if codings[0].lower() != b"chunked":
            raise Refused(Reason.CODING_UNKNOWN, "The only transfer coding known here is chunked.")
        return CHUNKED
    if not lengths:
        return 0
    if len(lengths) > 1 or not _is_length(lengths[0]):
        _bad("Content-Length must be sent once, as a number.")
    return int(lengths[0])


def _is_length(value: bytes) -> bool:
    return value.isdigit() and len(value) <= LENGTH_DIGITS


def _response_length(values: Values, *, status: int, method: bytes) -> int:
    lengths = values.get(b"content-length")
    codings = values.get(b"transfer-encoding")
    if codings and (lengths or len(codings) > 1 or codings[0].lower() != b"chunked"):
        raise ResponseError("the response states its length in two ways or uses an unknown transfer coding")
    if lengths and (len(set(lengths)) > 1 or not _is_length(lengths[0])):
        raise ResponseError("the response's Content-Length is not one number")
    if method == b"HEAD" or status < 200 or status in {204, 304}:
        return 0
    if codings:
        return CHUNKED
    return int(lengths[0]) if lengths else UNTIL_CLOSE


def _expects_continue(values: Values) -> bool:
    if values[b"expect"][0].lower() != b"100-continue":
        raise Refused(Reason.EXPECTATION_FAILED, "The only expectation known here is 100-continue.")
    return True


def _tokens(values: Values) -> frozenset[bytes]:
    return frozenset(token.strip(b" \t").lower() for value in values[b"connection"] for token in value.split(b","))


def _bad(message: str) -> NoReturn:
    raise Refused(Reason.BAD_REQUEST, message)
