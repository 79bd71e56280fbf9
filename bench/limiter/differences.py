"""What the limiter changes on purpose: the whole list, each entry as a function that makes the change.

Applied to what engine and client saw of each other without a limiter, the list gives what they must see with one, to
the byte. Whatever else differs is a defect. Nothing of the limiter's own code is used for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from bench.limiter.pairs import Answer, Ask, Framing, Talk, Way
from bench.limiter.parties import Headers, SeenAnswer, SeenRequest

_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding"
    b" upgrade".split()
)
_CREDENTIALS = frozenset(b"authorization x-api-key api-key".split())
_STEERING = frozenset(b"x-vllm-priority x-data-parallel-rank x-session-id x-conversation-id".split())
_KEPT_THOUGH_NAMED = frozenset(
    b"accept accept-encoding cache-control content-encoding content-length content-type forwarded origin traceparent"
    b" tracestate user-agent x-forwarded-for x-forwarded-host x-forwarded-proto x-real-ip".split()
)
_QUOTA_HEADERS = (b"x-ratelimit-", b"anthropic-ratelimit-", b"ratelimit")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
MADE_ANEW = b"(made anew)"


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the differences of one pair depend on."""

    talk: Talk
    ask: Ask
    answer: Answer
    asked: SeenRequest
    """The request as the engine saw it without a limiter."""
    engine_host: bytes

    @property
    def generates(self) -> bool:
        """Return whether the request is counted."""
        return self.ask.method == "POST"

    @property
    def usage_is_added(self) -> bool:
        """Return whether the limiter asks for usage on the client's behalf."""
        if not any(path in self.ask.target.replace("%65", "e") for path in ("/chat/completions", "/completions")):
            return False
        if not self.generates:
            return False
        body = json.loads(self.asked.body)
        options = body.get("stream_options") or {}
        return body.get("stream") is True and options.get("include_usage") is not True

    @property
    def is_amended(self) -> bool:
        """Return whether events may be taken out of the answer."""
        return self.usage_is_added and self.answer.framing in {Framing.CHUNKED, Framing.CLOSE} and self.is_stream

    @property
    def is_stream(self) -> bool:
        """Return whether the answer is an event stream."""
        return any(name == "Content-Type" and "event-stream" in value for name, value in self.answer.headers)


def without(headers: Headers, dropped: Callable[[bytes], bool]) -> Headers:
    """Return the headers that are not dropped."""
    return tuple((name, value) for name, value in headers if not dropped(name))


# ---- requests


def _host(seen: SeenRequest, case: Case) -> SeenRequest:
    return replace(seen, headers=((b"host", case.engine_host), *without(seen.headers, lambda name: name == b"host")))


def _named(seen: SeenRequest, _: Case) -> SeenRequest:
    members = {
        member.strip().lower() for name, value in seen.headers if name == b"connection" for member in value.split(b",")
    }
    return replace(seen, headers=without(seen.headers, lambda name: name in members - _KEPT_THOUGH_NAMED - {b"host"}))


def _hop_by_hop(seen: SeenRequest, _: Case) -> SeenRequest:
    return replace(seen, headers=without(seen.headers, lambda name: name in _HOP_BY_HOP - {b"transfer-encoding"}))


def _credentials(seen: SeenRequest, _: Case) -> SeenRequest:
    return replace(seen, headers=without(seen.headers, _CREDENTIALS.__contains__))


def _steering(seen: SeenRequest, _: Case) -> SeenRequest:
    return replace(seen, headers=without(seen.headers, _STEERING.__contains__))


def _own(seen: SeenRequest, _: Case) -> SeenRequest:
    return replace(seen, headers=without(seen.headers, lambda name: name.startswith(b"x-penstock-")))


def _expectation(seen: SeenRequest, _: Case) -> SeenRequest:
    return replace(seen, headers=without(seen.headers, lambda name: name == b"expect"))


def _one_piece(seen: SeenRequest, _: Case) -> SeenRequest:
    if (b"transfer-encoding", b"chunked") not in seen.headers:
        return seen
    headers = without(seen.headers, lambda name: name == b"transfer-encoding")
    return replace(seen, headers=(*headers, (b"content-length", b"%d" % len(seen.body))), trailers=())


def _usage_asked(seen: SeenRequest, case: Case) -> SeenRequest:
    if not case.usage_is_added:
        return seen
    return replace(seen, body=MADE_ANEW)


def _version(seen: SeenRequest, _: Case) -> SeenRequest:
    return replace(seen, version=b"1.1")


def _plain_target(seen: SeenRequest, _: Case) -> SeenRequest:
    path, mark, query = seen.target.partition(b"?")
    if path.startswith(b"http://"):
        path = b"/" + path.split(b"/", 3)[3]
    path = path.replace(b"%65", b"e").replace(b"//", b"/").replace(b"/x/..", b"")
    return replace(seen, target=path + mark + query)


def _request_id(seen: SeenRequest, _: Case) -> SeenRequest:
    headers = without(seen.headers, lambda name: name == b"x-request-id")
    return replace(seen, headers=(*headers, (b"x-request-id", MADE_ANEW)))


def _length_last(seen: SeenRequest, _: Case) -> SeenRequest:
    lengths = tuple(one for one in seen.headers if one[0] == b"content-length")
    host, *rest = without(seen.headers, lambda name: name == b"content-length")
    if rest and rest[-1][0] == b"x-request-id":
        return replace(seen, headers=(host, *rest[:-1], *lengths, rest[-1]))
    return replace(seen, headers=(host, *rest, *lengths))


REQUEST_DIFFERENCES: dict[str, Callable[[SeenRequest, Case], SeenRequest]] = {
    "Host is the engine's, and comes first": _host,
    "headers that `Connection` names end at the limiter, except those that say what the body is or whose it is": _named,
    "hop-by-hop headers end at the limiter": _hop_by_hop,
    "credentials end at the limiter": _credentials,
    "headers that steer an engine end at the limiter": _steering,
    "the limiter's own headers end at the limiter": _own,
    "the limiter itself answers `Expect: 100-continue`": _expectation,
    "a body in chunks is sent with its length, without extensions and trailers": _one_piece,
    "usage is asked for where a quota counts tokens": _usage_asked,
    "HTTP/1.0 becomes HTTP/1.1": _version,
    "the path is sent in its plain form, without scheme and host": _plain_target,
    "every attempt has a request id of its own, as the last header": _request_id,
    "Content-Length comes last but one": _length_last,
}


# ---- answers


def _interim(seen: SeenAnswer, _: Case) -> SeenAnswer:
    return replace(seen, interim=())


def _answer_version(seen: SeenAnswer, _: Case) -> SeenAnswer:
    return replace(seen, version=b"1.1") if seen.status else seen


def _answer_named(seen: SeenAnswer, _: Case) -> SeenAnswer:
    members = {
        member.strip().lower() for name, value in seen.headers if name == b"connection" for member in value.split(b",")
    }
    return replace(seen, headers=without(seen.headers, lambda name: name in members - _KEPT_THOUGH_NAMED))


def _answer_hop_by_hop(seen: SeenAnswer, _: Case) -> SeenAnswer:
    return replace(seen, headers=without(seen.headers, lambda name: name in _HOP_BY_HOP - {b"transfer-encoding"}))


def _head_chunked(seen: SeenAnswer, case: Case) -> SeenAnswer:
    if case.ask.method != "HEAD":
        return seen
    return replace(seen, headers=without(seen.headers, lambda name: name == b"transfer-encoding"))


def _amended_in_chunks(seen: SeenAnswer, case: Case) -> SeenAnswer:
    if not (case.usage_is_added and case.is_stream and case.answer.framing is Framing.LENGTH and seen.status):
        return seen
    headers = without(seen.headers, lambda name: name == b"content-length")
    return replace(seen, headers=(*headers, (b"transfer-encoding", b"chunked")) if case.ask.minor else headers)


def _unchunked(seen: SeenAnswer, case: Case) -> SeenAnswer:
    if case.ask.minor or case.answer.framing is not Framing.CHUNKED:
        return seen
    return replace(seen, headers=without(seen.headers, lambda name: name == b"transfer-encoding"), trailers=())


def _no_trailers(seen: SeenAnswer, case: Case) -> SeenAnswer:
    return replace(seen, trailers=()) if case.is_amended else seen


def _chunked_last(seen: SeenAnswer, _: Case) -> SeenAnswer:
    codings = tuple(one for one in seen.headers if one[0] == b"transfer-encoding")
    return replace(seen, headers=(*without(seen.headers, lambda name: name == b"transfer-encoding"), *codings))


def _close_is_said(seen: SeenAnswer, case: Case) -> SeenAnswer:
    asked = any(name == "Connection" and "close" in value.lower() for name, value in case.ask.headers)
    until_close = case.answer.framing is Framing.CLOSE and case.ask.method != "HEAD"
    if not seen.status or not (asked or until_close or not case.ask.minor):
        # an engine that closes after an answer with a length closes its own connection and not the client's
        return replace(seen, ends=seen.ends and not seen.whole)
    return replace(seen, headers=(*seen.headers, (b"connection", b"close")), ends=True)


def _quotas(seen: SeenAnswer, case: Case) -> SeenAnswer:
    if not case.generates or not seen.status:
        return seen
    return replace(seen, headers=(*seen.headers, (b"ratelimit", MADE_ANEW)))


def _shown_id(seen: SeenAnswer, case: Case) -> SeenAnswer:
    if not seen.status:
        return seen
    own = next((value for name, value in case.ask.headers if name == "X-Request-Id"), "")
    shown = own.encode() if own == "mine-17" else MADE_ANEW
    headers = without(seen.headers, lambda name: name == b"x-request-id")
    return replace(seen, headers=(*headers, (b"x-request-id", shown)))


ANSWER_DIFFERENCES: dict[str, Callable[[SeenAnswer, Case], SeenAnswer]] = {
    "interim answers of the engine end at the limiter, which sends its own": _interim,
    "the version is HTTP/1.1": _answer_version,
    "headers that the engine's `Connection` names end at the limiter": _answer_named,
    "hop-by-hop headers of the engine end at the limiter": _answer_hop_by_hop,
    "an answer to HEAD does not say that it would be chunked": _head_chunked,
    "a stream with a length is sent in chunks where the usage event may be taken out": _amended_in_chunks,
    "an HTTP/1.0 client gets a body without chunks": _unchunked,
    "trailers may be lost where the usage event may be taken out": _no_trailers,
    "Transfer-Encoding comes behind the engine's own headers": _chunked_last,
    "a connection that ends says so, and one that only the engine ends does not": _close_is_said,
    "quotas are told": _quotas,
    "the client's request id is returned, else a new one": _shown_id,
}

BROKEN = "an answer that breaks off before its head is complete becomes 502, a stream ends with an error event"
"""Has no function: `differential` compares how much came, since where a broken connection ends is up to the kernel."""

REPEATED = "a safe request is sent again, once, when a connection that had been used before ends without a byte"
"""Has no function: `differential` counts. It never happens to a request that generates."""


def may_be_repeated(direct: SeenAnswer, case: Case) -> bool:
    """Return whether the engine may get a request twice: it is safe, and its first answer is not a byte."""
    return case.ask.method in _SAFE_METHODS and not (direct.status or direct.interim)


def settled_request(seen: SeenRequest, case: Case) -> SeenRequest:
    """Return a request that came through the limiter with what is made anew left out, after a look at it."""
    headers = list(seen.headers)
    body = seen.body
    if headers and headers[-1][0] == b"x-request-id" and len(headers[-1][1]) == 32:
        headers[-1] = (b"x-request-id", MADE_ANEW)
    if case.usage_is_added:
        wanted = json.loads(case.asked.body)
        wanted["stream_options"] = (wanted.get("stream_options") or {}) | {"include_usage": True}
        length = b"%d" % len(body)
        if json.loads(body) == wanted and dict(headers)[b"content-length"] == length:
            body = MADE_ANEW
            before = dict(case.asked.headers).get(b"content-length", b"%d" % len(case.asked.body))
            headers = [(name, before if name == b"content-length" else value) for name, value in headers]
    return replace(seen, headers=tuple(headers), body=body)


def settled_answer(seen: SeenAnswer, case: Case) -> SeenAnswer:
    """Return an answer that came through the limiter with what is made anew left out, after a look at it."""
    headers: list[tuple[bytes, bytes]] = []
    for name, value in seen.headers:
        if name.startswith(_QUOTA_HEADERS):
            if headers[-1][0] != b"ratelimit":
                headers.append((b"ratelimit", MADE_ANEW))
        elif (
            name == b"x-request-id" and len(value) == 32 and value not in {one.encode() for _, one in case.ask.headers}
        ):
            headers.append((name, MADE_ANEW))
        else:
            headers.append((name, value))
    interim = tuple(status for status in seen.interim if status != 100 or case.talk.way is not Way.HALF_CLOSED)
    trailers = () if case.is_amended else seen.trailers
    return replace(seen, headers=tuple(headers), interim=interim, trailers=trailers)
