"""Requests and answers as chance makes them: what the differential run sends, the same for the same number.

A `Talk` is one connection: requests one after the other or all at once, each with the answer that the engine is to give
and with the places where the bytes are cut and the sender rests. All of it is valid HTTP in forms that clients and
engines may use and seldom do: chunk extensions, trailers, blanks, repeated headers, interim answers, answers that end
with the connection, HTTP/1.0, half-closed connections, answers that break off.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

GENERATION = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/messages", "/tokenize", "/v1/responses")
READS = ("/v1/models", "/version")
CASE_HEADER = "x-case"
PIPELINED_BYTES = 40_000
REST_SECONDS = 0.003
LONGEST_PIECES = 24

_WORDS = (
    "penstock",
    "gate",
    "water",
    "Wasser",
    "水",
    "eau",
    "\u00e9tang",
    "\U0001f6b0",
    "\\",
    '"',
    "\n",
    "{",
    "}",
    "[DONE]",
)
_NAMES = (
    "X-Custom",
    "Accept",
    "User-Agent",
    "X_under",
    "Cookie",
    "Traceparent",
    "X-Stainless-Lang",
    "Accept-Language",
    "~odd",
)
_DROPPED = (
    ("Authorization", "Bearer sk-x"), ("X-Api-Key", "sk-x"), ("Api-Key", "sk-x"), ("X-Vllm-Priority", "-5"),
    ("X-Data-Parallel-Rank", "3"), ("X-Session-Id", "s"), ("X-Conversation-Id", "c"), ("X-Penstock-Hop", "1"),
    ("X-Penstock-Priority", "interactive"), ("TE", "trailers"), ("Keep-Alive", "timeout=5"), ("Upgrade", "h2c"),
    ("Proxy-Authorization", "Basic eA=="), ("Proxy-Connection", "keep-alive"), ("X-Request-Id", "mine-17"),
    ("X-Request-Id", "not one of (ours)"),
)  # fmt: skip
_ANSWER_NAMES = ("X-Process-Time", "Server", "Date", "Set-Cookie", "Cache-Control", "openai-processing-ms", "Vary")
_ANSWER_DROPPED = (("Keep-Alive", "timeout=5"), ("X-Request-Id", "engine-1"), ("Connection", "keep-alive, X-Hop"))
_STATUSES = (200, 200, 200, 200, 201, 400, 404, 422, 429, 500, 503, 204, 304)

Header = tuple[str, str]
Cuts = tuple[int, ...]


class Framing(StrEnum):
    """How a body's end is told."""

    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"
    NONE = "none"


class Way(StrEnum):
    """How a connection's requests follow each other."""

    ONE_BY_ONE = "one by one"
    PIPELINED = "pipelined"
    HALF_CLOSED = "half-closed"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the engine is to answer."""

    status: int
    reason: str
    headers: tuple[Header, ...]
    framing: Framing
    payload: bytes
    usage: bytes = b""
    """An event that goes before the stream's last one, when the request asks for it."""
    chunks: Cuts = ()
    extension: str = ""
    trailers: tuple[Header, ...] = ()
    interim: tuple[int, ...] = ()
    minor: int = 1
    framing_first: bool = False
    """Whether the header lines of the framing come first."""
    pieces: Cuts = ()
    breaks_at: float | None = None
    """Part of its bytes after which the engine closes the connection."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What the client sends."""

    method: str
    target: str
    headers: tuple[Header, ...]
    framing: Framing
    body: bytes
    chunks: Cuts = ()
    extension: str = ""
    trailers: tuple[Header, ...] = ()
    minor: int = 1
    expects: bool = False
    framing_first: bool = False
    """Whether the header lines of the framing come first."""
    pieces: Cuts = ()


@dataclass(frozen=True, kw_only=True)
class Talk:
    """One connection."""

    number: int
    way: Way
    pairs: tuple[tuple[Ask, Answer], ...]
    rests: tuple[float, ...] = field(default=(0.0,))
    """How long a sender rests between pieces, in turn."""


def talk(seed: int, number: int) -> Talk:
    """Return the connection of this number."""
    return _Maker(random.Random(f"{seed}/{number}"), number).talk()


def render(headers: Sequence[Header]) -> bytes:
    """Return header lines."""
    return b"".join(f"{name}: {value}\r\n".encode() for name, value in headers)


def framed(
    payload: bytes, framing: Framing, *, chunks: Cuts, extension: str, trailers: Sequence[Header]
) -> tuple[bytes, bytes]:
    """Return the header lines that tell a body's end, and the bytes of that body."""
    if framing is Framing.LENGTH:
        return b"Content-Length: %d\r\n" % len(payload), payload
    if framing is not Framing.CHUNKED:
        return b"", payload if framing is Framing.CLOSE else b""
    parts = [part for part in cut(payload, chunks) if part]
    body = b"".join(b"%X%b\r\n%b\r\n" % (len(part), extension.encode(), part) for part in parts)
    return b"Transfer-Encoding: chunked\r\n", body + b"0\r\n" + render(trailers) + b"\r\n"


def cut(data: bytes, places: Cuts) -> list[bytes]:
    """Return the data in pieces; places are thousandths of it."""
    ends = sorted({len(data) * place // 1000 for place in places} | {len(data)})
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


class _Maker:
    def __init__(self, chance: random.Random, number: int) -> None:
        self._chance = chance
        self._number = number

    def talk(self) -> Talk:
        chance = self._chance
        count = chance.choice((1, 1, 2, 3, 4))
        way = chance.choice((Way.ONE_BY_ONE, Way.ONE_BY_ONE, Way.PIPELINED, Way.HALF_CLOSED))
        most = PIPELINED_BYTES // count if way is not Way.ONE_BY_ONE else 300_000
        pairs = tuple(self._pair(way, most, index, last=index == count - 1) for index in range(count))
        rests = tuple(chance.choice((0.0, 0.0, 0.0, REST_SECONDS * chance.random())) for _ in range(7))
        return Talk(number=self._number, way=way, pairs=pairs, rests=rests)

    def _pair(self, way: Way, most: int, index: int, *, last: bool) -> tuple[Ask, Answer]:
        ask = self._ask(way, most, index, last=last)
        return ask, self._answer(ask, last=last)

    # ---- requests

    def _ask(self, way: Way, most: int, index: int, *, last: bool) -> Ask:
        chance = self._chance
        generation = chance.random() < 0.75
        path = chance.choice(GENERATION if generation else READS)
        method = "POST" if generation else chance.choice(("GET", "GET", "HEAD", "OPTIONS"))
        minor = 0 if last and way is Way.ONE_BY_ONE and chance.random() < 0.1 else 1
        body = self._request_body(most) if generation else b""
        framings = (Framing.LENGTH, Framing.CHUNKED) if minor else (Framing.LENGTH,)
        framing = chance.choice(framings) if generation else Framing.NONE
        headers = [(CASE_HEADER, f"{self._number}-{index}"), *self._headers(_NAMES)]
        headers += [one for one in _DROPPED if chance.random() < 0.12]
        if headers.count(("X-Request-Id", "mine-17")) + headers.count(("X-Request-Id", "not one of (ours)")) > 1:
            headers.remove(("X-Request-Id", "mine-17"))
        if body and chance.random() < 0.8:
            headers.append(("Content-Type", "application/json"))
        members = [name for name in ("X-Custom", "Keep-Alive", "Accept", "TE") if chance.random() < 0.1]
        if last and minor and chance.random() < 0.2:
            members.append(chance.choice(("close", "Close")))
        if members:
            headers.append(("Connection", ", ".join(members)))
        chunked = framing is Framing.CHUNKED
        if chunked and chance.random() < 0.2:
            headers.append(("Trailer", "X-Sum"))
        chance.shuffle(headers)
        return Ask(
            method=method,
            target=self._target(path),
            headers=tuple(headers),
            framing=framing,
            body=body,
            chunks=self._cuts(len(body)) if chunked else (),
            extension=chance.choice(("", "", ";a=b", '; quoted="x y"')) if chunked else "",
            trailers=(("X-Sum", "17"),) if chunked and chance.random() < 0.2 else (),
            minor=minor,
            expects=bool(generation and body and minor and way is Way.ONE_BY_ONE and chance.random() < 0.1),
            framing_first=chance.random() < 0.5,
            pieces=self._cuts(len(body) + 300),
        )

    def _target(self, path: str) -> str:
        chance = self._chance
        target = path
        match chance.randrange(12):
            case 0:
                target = path.replace("/v1/", "//v1//") if "/v1/" in path else "/" + path
            case 1:
                target = path.replace("e", "%65", 1)
            case 2:
                target = "/x/.." + path
            case 3:
                target = "http://elsewhere.example:8000" + path
        if chance.random() < 0.2:
            target += chance.choice(("?a=b", "?q=%2F..%2F&x=1", "?", "?api-version=2026-01-01&x=%C3%A9"))
        return target

    def _request_body(self, most: int) -> bytes:
        chance = self._chance
        size = int(most ** chance.random())
        text = self._text(size)
        body: dict[str, object] = {
            "model": "bench",
            "messages": [{"role": "user", "content": text}],
            "prompt": text[:50],
        }
        if chance.random() < 0.6:
            body["stream"] = chance.random() < 0.85
        if chance.random() < 0.3:
            body["stream_options"] = {"include_usage": chance.random() < 0.5}
        if chance.random() < 0.5:
            body["max_tokens"] = chance.randrange(1, 5000)
        separators = chance.choice(((",", ":"), (", ", ": "), (" ,\n", "\t:\r\n ")))
        written = json.dumps(body, ensure_ascii=chance.random() < 0.5, separators=separators).encode()
        return chance.choice((b"", b"", b"\r\n ")) + written + chance.choice((b"", b"", b"\n"))

    # ---- answers

    def _answer(self, ask: Ask, *, last: bool) -> Answer:
        chance = self._chance
        status = chance.choice(_STATUSES)
        bodiless = status in {204, 304}
        headers = [("X-Case-Seen", str(self._number)), *self._headers(_ANSWER_NAMES)]
        headers += [one for one in _ANSWER_DROPPED if chance.random() < 0.1]
        framings = [Framing.LENGTH, Framing.CHUNKED, Framing.CHUNKED, *([Framing.CLOSE] if last else [])]
        framing = Framing.NONE if bodiless else chance.choice(framings)
        kind = chance.choice(("json", "json", "bytes", "stream", "stream", "gzip"))
        payload, usage = b"", b""
        kind_headers: list[Header] = []
        if not bodiless:
            payload, usage, kind_headers = self._payload(kind, ask)
        if framing is Framing.LENGTH or status != 200:
            usage = b""
        chunked = framing is Framing.CHUNKED
        whole = ask.method == "HEAD" or bodiless or not last or framing is Framing.CLOSE
        return Answer(
            status=status,
            reason=chance.choice(("OK", "", "Ganz Recht", "No  Content")),
            headers=(*headers, *kind_headers),
            framing=framing,
            payload=payload,
            usage=usage,
            chunks=self._cuts(len(payload)) if chunked else (),
            extension=chance.choice(("", "", "", ";x", ";y=1")) if chunked else "",
            trailers=(("X-Checksum", "abc"),) if chunked and chance.random() < 0.3 else (),
            interim=tuple(chance.choice((100, 102, 103)) for _ in range(chance.choice((0, 0, 0, 0, 1, 2))))
            if ask.minor
            else (),
            minor=0 if framing in {Framing.CLOSE, Framing.LENGTH} and last and chance.random() < 0.2 else 1,
            framing_first=chance.random() < 0.5,
            pieces=self._cuts(len(payload) + 200),
            breaks_at=None if whole or chance.random() > 0.1 else chance.choice((0.0, *[chance.random()] * 3)),
        )

    def _payload(self, kind: str, ask: Ask) -> tuple[bytes, bytes, list[Header]]:
        chance = self._chance
        size = int(200_000 ** chance.random())
        if kind == "bytes":
            return chance.randbytes(size), b"", [("Content-Type", "application/octet-stream")]
        if kind == "stream":
            stream, usage = self._stream(ask)
            return (
                stream,
                usage,
                [("Content-Type", chance.choice(("text/event-stream", "text/event-stream; charset=utf-8")))],
            )
        text = json.dumps({"choices": [{"message": {"content": self._text(size)}}], "usage": _USAGE}).encode()
        if kind == "gzip":
            return (
                gzip.compress(text, mtime=0),
                b"",
                [("Content-Type", "application/json"), ("Content-Encoding", "gzip")],
            )
        return text, b"", [("Content-Type", "application/json")]

    def _stream(self, ask: Ask) -> tuple[bytes, bytes]:
        chance = self._chance
        end = chance.choice(("\n\n", "\n\n", "\n\n", "\r\n\r\n"))
        events = [
            json.dumps(
                {"choices": [{"delta": {"content": self._text(chance.randrange(40))}, "finish_reason": None}]},
                ensure_ascii=chance.random() < 0.5,
                separators=(",", ":"),
            )
            for _ in range(chance.choice((0, 1, 3, 20, 80)))
        ]
        events.append('{"choices":[{"delta":{},"finish_reason":"stop"}]}')
        text = "".join(f"data: {event}{end}" for event in events)
        if chance.random() < 0.2:
            text = f": a comment{end}event: ping{end}" + text
        usage = f'data: {{"choices":[],"usage":{json.dumps(_USAGE)}}}{end}'
        return f"{text}data: [DONE]{end}".encode(), usage.encode() if ask.method == "POST" else b""

    # ---- both

    def _headers(self, names: Sequence[str]) -> list[Header]:
        chance = self._chance
        chosen = [chance.choice(names) for _ in range(chance.randrange(6))]
        return [(name, self._value()) for name in chosen]

    def _value(self) -> str:
        chance = self._chance
        return chance.choice(
            ("", "a", "a, b;q=0.5", "\u00fc\u6c34", "x" * chance.randrange(1, 3000), '"quoted \\" text"', "a  b\tc")
        )

    def _text(self, size: int) -> str:
        words: list[str] = []
        while size > 0:
            words.append(self._chance.choice(_WORDS) * self._chance.choice((1, 1, 1, 40)))
            size -= len(words[-1]) + 1
        return " ".join(words)

    def _cuts(self, size: int) -> Cuts:
        count = min(self._chance.choice((0, 0, 1, 3, LONGEST_PIECES)), size)
        return tuple(self._chance.randrange(1000) for _ in range(count))


_USAGE = {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21}
