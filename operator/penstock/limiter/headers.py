"""Headers on their way through: what is dropped, what is set, and the bytes of both heads.

Connection-level headers end here, also those named in `Connection`, except the ones that say what the body is or where
a request came from: a client must not be able to make the limiter drop them. Credentials and everything that would
steer the engine's scheduler end here too. The engine gets a request id of its own for every attempt, because engines
have failed on repeated ids; the client's id is echoed to the client.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from penstock.limiter.head import CHUNKED, RequestHead, ResponseHead
from penstock.limiter.refusal import PHRASES

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_ENDS_HERE = _HOP_BY_HOP | {
    # written anew
    b"host",
    b"content-length",
    b"expect",
    b"x-request-id",
    # credentials
    b"authorization",
    b"x-api-key",
    b"api-key",
    # would steer the engine: scheduling, replica choice, and llama-server's generation that outlives its client
    b"x-vllm-priority",
    b"x-data-parallel-rank",
    b"x-session-id",
    b"x-conversation-id",
}
_NOT_FOR_CLIENTS = _HOP_BY_HOP | {b"x-request-id"}  # the id is written anew
_OWN_PREFIX = b"x-penstock-"
_UNDROPPABLE = frozenset(
    {
        b"accept",
        b"accept-encoding",
        b"cache-control",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"forwarded",
        b"origin",
        b"traceparent",
        b"tracestate",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-proto",
        b"x-real-ip",
    }
)
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=\-]{1,128}")


def new_id() -> bytes:
    """Return an id that no other request has; it is no secret."""
    return b"%032x" % random.getrandbits(128)


def request_id(request: RequestHead) -> bytes | None:
    """Return the client's own id for the request when it is well-formed."""
    own = request.values.get(b"x-request-id")
    return own[0] if own is not None and _REQUEST_ID.fullmatch(own[0]) else None


def engine_head(request: RequestHead, *, target: bytes, host: bytes, attempt_id: bytes, body_bytes: int) -> bytes:
    """Return the head to send to the engine; the body is sent with a length, never in chunks."""
    dropped = _with_named(_ENDS_HERE, request.connection) if request.connection else _ENDS_HERE
    lines = [b"%b %b HTTP/1.1\r\nHost: %b\r\n" % (request.method, target, host)]
    for key, name, value in request.fields:
        if key not in dropped and not key.startswith(_OWN_PREFIX):
            lines.append(b"%b: %b\r\n" % (name, value))
    if body_bytes or request.method in {b"POST", b"PUT", b"PATCH"}:
        lines.append(b"Content-Length: %d\r\n" % body_bytes)
    lines.append(b"X-Request-Id: %b\r\n\r\n" % attempt_id)
    return b"".join(lines)


def client_head(
    response: ResponseHead, *, shown_id: bytes, close: bool, unchunk: bool, extra: Sequence[tuple[bytes, bytes]] = ()
) -> bytes:
    """Return the head to send to the client.

    Args:
        response: The engine's head.
        shown_id: The request id the client knows.
        close: Whether this is the connection's last response.
        unchunk: Whether the client speaks HTTP/1.0 and gets the body without chunk frames.
        extra: Headers of the limiter's own.
    """
    dropped = _with_named(_NOT_FOR_CLIENTS, response.connection) if response.connection else _NOT_FOR_CLIENTS
    lines = [b"HTTP/1.1 %d %b\r\n" % (response.status, response.reason)]
    length_seen = False
    for key, name, value in response.fields:
        if key == b"content-length":  # equal repeated lengths, which engines have sent, become one
            if length_seen:
                continue
            length_seen = True
        if key not in dropped:
            lines.append(b"%b: %b\r\n" % (name, value))
    if response.length == CHUNKED and not unchunk:
        lines.append(b"Transfer-Encoding: chunked\r\n")
    if close:
        lines.append(b"Connection: close\r\n")
    for name, value in extra:
        lines.append(b"%b: %b\r\n" % (name, value))
    lines.append(b"X-Request-Id: %b\r\n\r\n" % shown_id)
    return b"".join(lines)


def own_response(status: int, fields: list[tuple[bytes, bytes]], body: bytes, *, close: bool, head_only: bool) -> bytes:
    """Return a response the limiter makes itself; `head_only` answers a HEAD request."""
    lines = [b"HTTP/1.1 %d %b\r\n" % (status, PHRASES.get(status, "").encode())]
    lines += [b"%b: %b\r\n" % field for field in fields]
    lines.append(b"Content-Length: %d\r\n" % len(body))
    lines.append(b"Connection: close\r\n\r\n" if close else b"\r\n")
    if not head_only:
        lines.append(body)
    return b"".join(lines)


def _with_named(dropped: frozenset[bytes], connection: frozenset[bytes]) -> frozenset[bytes]:
    """Return the names to drop with those that `Connection` names."""
    return dropped | (connection - _UNDROPPABLE)
