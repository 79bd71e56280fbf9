"""Both ends of the differential run: an engine that records requests and a client that records answers.

What they read is judged by h11, a parser that shares nothing with the limiter. What they send is written by hand, since
no library would send it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import h11

from bench.limiter.pairs import CASE_HEADER, Answer, Ask, Cuts, Framing, Talk, Way, cut, framed, render
from bench.limiter.replica import HOST

READ_BYTES = 1 << 16
EVENT_LIMIT_BYTES = 1 << 20
PATIENCE_SECONDS = 20.0
CONTINUE_SECONDS = 10.0
DONE = b"data: [DONE]"

Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, kw_only=True)
class SeenRequest:
    """A request as the engine had it."""

    method: bytes
    target: bytes
    version: bytes
    headers: Headers
    body: bytes
    trailers: Headers = ()


@dataclass(frozen=True, kw_only=True)
class SeenAnswer:
    """An answer as the client had it; `whole` is False when it broke off, also before it began."""

    interim: tuple[int, ...] = ()
    status: int = 0
    reason: bytes = b""
    version: bytes = b""
    headers: Headers = ()
    body: bytes = b""
    trailers: Headers = ()
    whole: bool = False
    ends: bool = False
    """Whether the connection ended behind it."""


class Engine:
    """Answers every case as it is planned, and keeps what it was asked.

    Attributes:
        seen: Requests by case.
        plans: Answers by case.
    """

    def __init__(self) -> None:
        self.seen: dict[str, list[SeenRequest]] = {}
        self.plans: dict[str, tuple[Answer, tuple[float, ...]]] = {}
        self.port = 0

    def expect(self, talk: Talk) -> None:
        """Plan for a talk, and forget what was seen of it."""
        for index, (_, answer) in enumerate(talk.pairs):
            case = f"{talk.number}-{index}"
            self.seen[case] = []
            self.plans[case] = answer, talk.rests

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        rest = b""
        try:
            while True:
                found = await self._read(reader, writer, rest)
                if found is None:
                    break
                request, rest = found
                if not await self._answer(request, writer):
                    break
        except (ConnectionError, h11.RemoteProtocolError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _read(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rest: bytes
    ) -> tuple[SeenRequest, bytes] | None:
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=EVENT_LIMIT_BYTES)
        if rest:
            parser.receive_data(rest)
        head: h11.Request | None = None
        body: list[bytes] = []
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                if head is not None and parser.they_are_waiting_for_100_continue:
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                data = await reader.read(READ_BYTES)
                if not data:
                    return None
                parser.receive_data(data)
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                request = SeenRequest(
                    method=head.method,
                    target=head.target,
                    version=head.http_version,
                    headers=_plain(head.headers),
                    body=b"".join(body),
                    trailers=_plain(event.headers),
                )
                return request, parser.trailing_data[0]
            else:
                return None

    async def _answer(self, request: SeenRequest, writer: asyncio.StreamWriter) -> bool:
        headers = dict(request.headers)
        case = headers.get(CASE_HEADER.encode(), b"").decode()
        if case not in self.plans:  # a look at health or metrics
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return True
        self.seen[case].append(request)
        answer, rests = self.plans[case]
        data = answer_bytes(answer, head_only=request.method == b"HEAD", usage=_asks_for_usage(request.body))
        if answer.breaks_at is not None:
            data = data[: int(len(data) * answer.breaks_at)]
        await send(writer, data, answer.pieces, rests)
        stays = answer.minor or any(name == "Connection" and "keep-alive" in value for name, value in answer.headers)
        until_close = answer.framing is Framing.CLOSE and request.method != b"HEAD"
        if answer.breaks_at is not None or until_close or not stays:
            return False
        return request.version == b"1.1" and b"close" not in headers.get(b"connection", b"").lower()


@asynccontextmanager
async def running_engine() -> AsyncIterator[Engine]:
    """Run an engine on a port of its own."""
    engine = Engine()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        await engine.serve(reader, writer)
        tasks.discard(task)

    server = await asyncio.start_server(serve, HOST, 0)
    engine.port = server.sockets[0].getsockname()[1]
    try:
        yield engine
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)


async def hold(talk: Talk, port: int) -> list[SeenAnswer]:
    """Hold a talk with whoever listens on a port and return its answers."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        reader, writer = await asyncio.open_connection(HOST, port)
        try:
            return await _Client(talk, reader, writer).hold()
        finally:
            writer.transport.abort()


class _Client:
    def __init__(self, talk: Talk, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._talk = talk
        self._reader = reader
        self._writer = writer
        self._rest = b""
        self._ended = False

    async def hold(self) -> list[SeenAnswer]:
        asks = [ask for ask, _ in self._talk.pairs]
        if self._talk.way is Way.ONE_BY_ONE:
            seen = []
            for ask in asks:
                seen.append(await self._one(ask))
                if not seen[-1].whole or seen[-1].ends:
                    break
            return seen
        sending = asyncio.create_task(self._send_all(asks))
        seen = []
        for ask in asks:
            seen.append(await self._read(ask))
            if not seen[-1].whole or seen[-1].ends:
                break
        await sending
        return seen

    async def _send_all(self, asks: Sequence[Ask]) -> None:
        pieces = tuple(place for ask in asks for place in ask.pieces)
        data = b"".join(b"".join(ask_bytes(ask)) for ask in asks)
        with suppress(ConnectionError):
            await send(self._writer, data, pieces, self._talk.rests)
            if self._talk.way is Way.HALF_CLOSED:
                self._writer.write_eof()

    async def _one(self, ask: Ask) -> SeenAnswer:
        head, body = ask_bytes(ask)
        if not ask.expects:
            sending = asyncio.create_task(self._send(head + body, ask.pieces))
            seen = await self._read(ask)
            await sending
            return seen
        await self._send(head, ())
        async with asyncio.timeout(CONTINUE_SECONDS):
            self._rest = await self._reader.readuntil(b"\r\n\r\n")
        await self._send(body, ask.pieces)
        return await self._read(ask)

    async def _send(self, data: bytes, pieces: Cuts) -> None:
        with suppress(ConnectionError):
            await send(self._writer, data, pieces, self._talk.rests)

    async def _read(self, ask: Ask) -> SeenAnswer:
        parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=EVENT_LIMIT_BYTES)
        parser.send(h11.Request(method=ask.method, target="/", headers=[("Host", "x")]))
        parser.send(h11.EndOfMessage())
        if self._rest:
            parser.receive_data(self._rest)
            self._rest = b""
        interim: list[int] = []
        head: h11.Response | None = None
        body: list[bytes] = []
        trailers: Headers = ()
        whole = False
        try:
            while True:
                event = parser.next_event()
                if event is h11.NEED_DATA:
                    data = await self._reader.read(READ_BYTES)
                    self._ended = self._ended or not data
                    parser.receive_data(data)
                elif isinstance(event, h11.InformationalResponse):
                    interim.append(event.status_code)
                elif isinstance(event, h11.Response):
                    head = event
                elif isinstance(event, h11.Data):
                    body.append(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    trailers = _plain(event.headers)
                    whole = True
                    break
                else:
                    break
        except (h11.RemoteProtocolError, ConnectionError):
            whole = False
        if head is None:
            return SeenAnswer(interim=tuple(interim), ends=True)
        self._rest = parser.trailing_data[0]
        headers = _plain(head.headers)
        return SeenAnswer(
            interim=tuple(interim),
            status=head.status_code,
            reason=head.reason,
            version=head.http_version,
            headers=headers,
            body=b"".join(body),
            trailers=trailers,
            whole=whole,
            ends=not whole or await self._ends(ask, headers),
        )

    async def _ends(self, ask: Ask, headers: Headers) -> bool:
        """Whether the connection ended; waits for it only where it has to."""
        said = b",".join(value for name, value in headers if name == b"connection").lower()
        asked = any(name == "Connection" and "close" in value.lower() for name, value in ask.headers)
        if not self._ended and (b"close" in said or asked or not ask.minor):
            self._ended = not await self._reader.read(1)
        return self._ended


def ask_bytes(ask: Ask) -> tuple[bytes, bytes]:
    """Return a request's head and body."""
    lines, body = framed(ask.body, ask.framing, chunks=ask.chunks, extension=ask.extension, trailers=ask.trailers)
    expect = b"Expect: 100-continue\r\n" if ask.expects else b""
    first = f"{ask.method} {ask.target} HTTP/1.{ask.minor}\r\nHost: penstock.example\r\n".encode()
    headers = render(ask.headers)
    return first + (lines + headers if ask.framing_first else headers + lines) + expect + b"\r\n", body


def answer_bytes(answer: Answer, *, head_only: bool, usage: bool) -> bytes:
    """Return an answer as it goes over the wire."""
    payload = answer.payload
    if usage and answer.usage:
        before, done, after = payload.rpartition(DONE)
        payload = before + answer.usage + done + after
    lines, body = framed(
        payload, answer.framing, chunks=answer.chunks, extension=answer.extension, trailers=answer.trailers
    )
    interim = b"".join(b"HTTP/1.1 %d Wait\r\nX-Early: 1\r\n\r\n" % status for status in answer.interim)
    first = f"HTTP/1.{answer.minor} {answer.status} {answer.reason}\r\n".encode()
    headers = render(answer.headers)
    headers = lines + headers if answer.framing_first else headers + lines
    return interim + first + headers + b"\r\n" + (b"" if head_only else body)


async def send(writer: asyncio.StreamWriter, data: bytes, pieces: Cuts, rests: tuple[float, ...]) -> None:
    """Send data in pieces, with rests between them."""
    for number, piece in enumerate(cut(data, pieces)):
        if number:
            await asyncio.sleep(rests[number % len(rests)])
        writer.write(piece)
        await writer.drain()


def _plain(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    return tuple((bytes(name), bytes(value)) for name, value in headers)


def _asks_for_usage(body: bytes) -> bool:
    try:
        asked = json.loads(body)
    except ValueError:
        return False
    options = asked.get("stream_options") if isinstance(asked, dict) else None
    return isinstance(options, dict) and options.get("include_usage") is True and asked.get("stream") is True
