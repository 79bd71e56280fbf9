"""One small GET to the engine, for the poller: a fresh connection, the whole answer in memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from penstock.limiter.framing import Body, FramingError, OpenBody, body_of
from penstock.limiter.head import ResponseError, find_end, parse_response
from penstock.limiter.upstream import Pool, Upstream

ANSWER_LIMIT_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body of a response."""

    status: int
    body: bytes


async def fetch(pool: Pool, path: str) -> Answer:
    """Return the engine's answer to `GET path`. The caller limits the time by cancelling.

    Raises:
        OSError: the engine cannot be reached or reset the connection.
        ResponseError: it did not answer in HTTP, or with too much.
    """
    loop = asyncio.get_running_loop()
    request = f"GET {path} HTTP/1.1\r\nHost: {pool.host}:{pool.port}\r\nConnection: close\r\n\r\n".encode()
    reader = _Reader(request, loop.create_future())
    dial = pool.open(reader.begin, reader.fail)
    try:
        return await reader.answer
    finally:
        dial.cancel()
        reader.close()


class _Reader:
    def __init__(self, request: bytes, answer: asyncio.Future[Answer]) -> None:
        self.answer = answer
        self._request = request
        self._upstream: Upstream | None = None
        self._buffer = b""
        self._status = 0
        self._body: Body | None = None
        self._pieces: list[bytes] = []
        self._size = 0

    def begin(self, upstream: Upstream) -> None:
        """Ask, on a new connection."""
        self._upstream = upstream
        upstream.attach(self.receive, self.lost)
        upstream.transport.write(self._request)

    def close(self) -> None:
        """End the connection."""
        if self._upstream is not None:
            self._upstream.abort()

    def receive(self, data: bytes) -> None:
        """Take bytes of the response."""
        try:
            self._read(data)
        except FramingError as error:
            self.fail(ResponseError(str(error)))
        except ResponseError as error:
            self.fail(error)

    def lost(self, error: Exception | None) -> None:
        """The connection has ended."""
        if error is None and isinstance(self._body, OpenBody):
            self._complete()
        else:
            self.fail(ConnectionResetError("the engine closed the connection before its answer was complete"))

    def _read(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > ANSWER_LIMIT_BYTES:
            raise ResponseError(f"the answer is larger than {ANSWER_LIMIT_BYTES} bytes")
        if self._body is None:
            self._buffer += data
            end = find_end(self._buffer)
            if end < 0:
                return
            head = parse_response(self._buffer[:end], method=b"GET")
            self._status = head.status
            self._body = body_of(head.length)
            data = self._buffer[end:]
        if data:
            self._body.feed(data, self._pieces.append)
        if self._body.done:
            self._complete()

    def _complete(self) -> None:
        if not self.answer.done():
            self.answer.set_result(Answer(self._status, b"".join(self._pieces)))

    def fail(self, error: Exception) -> None:
        """There will be no answer."""
        if not self.answer.done():
            self.answer.set_exception(error)
