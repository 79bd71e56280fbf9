"""`python -m bench.limiter.engine PORT`: an engine that takes as long as each request says.

A body that begins with `{"bench": {"first_ms": 5, "tokens": 20, "every_ms": 10}` is answered with so many tokens at
these times, as a stream when it has `"stream": true`. It reads bodies of any size, reports usage where it is asked for,
and counts: `GET /counts` says what it has started and finished, what it works on, and how many clients left it.

`--slots N` makes it one with slots, as llama-server has them: a request beyond them waits inside, and one whose client
has left keeps its slot for a while, which only the metrics show. Then `peak` counts what is inside, waiting or not.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
from contextlib import nullcontext
from typing import Any, cast

import uvloop

HOST = "127.0.0.1"
EVENT = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"token"},"finish_reason":null}]}\n\n'
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
DONE = b"data: [DONE]\n\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
BEGINNING_BYTES = 1000
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_BENCH = re.compile(rb'"bench": ?(\{[^}]*\})')
_STREAM = re.compile(rb'"stream": ?true')
_USAGE = re.compile(rb'"include_usage": ?true')

SLOT_SECONDS = (0.05, 0.8)
"""How long a slot stays taken after its client has left; the bounds of chance."""

slots: asyncio.Semaphore | None = None
chance = random.Random(1)
counts = {"started": 0, "finished": 0, "left": 0, "active": 0, "peak": 0, "body_bytes": 0}


class Serving(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._buffer = b""
        self._left = -1
        self._beginning = self._end = b""
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none

    def connection_lost(self, _error: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        if self._left < 0:
            self._buffer += data
            head, mark, data = self._buffer.partition(b"\r\n\r\n")
            if not mark:
                return
            self._buffer = b""
            if head.startswith(b"GET"):
                self._plain(_told(head))
                return
            length = _LENGTH.search(head)
            self._left = int(length[1]) if length else 0
            self._beginning = self._end = b""
        self._left -= len(data)
        counts["body_bytes"] += len(data)
        self._beginning = (
            (self._beginning + data)[:BEGINNING_BYTES] if len(self._beginning) < BEGINNING_BYTES else self._beginning
        )
        self._end = (self._end + data)[-BEGINNING_BYTES:]
        if self._left <= 0:
            self._left = -1
            self._task = asyncio.get_running_loop().create_task(self._serve())

    async def _serve(self) -> None:
        counts["started"] += 1
        counts["active"] += 1
        counts["peak"] = max(counts["peak"], counts["active"])
        try:
            async with slots or nullcontext():
                await self._in_slot()
        finally:
            counts["active"] -= 1

    async def _in_slot(self) -> None:
        try:
            await self._answer()
            counts["finished"] += 1
        except asyncio.CancelledError:
            counts["left"] += 1
            if slots is not None:
                await asyncio.sleep(chance.uniform(*SLOT_SECONDS))

    async def _answer(self) -> None:
        found = _BENCH.search(self._beginning)
        asked: dict[str, Any] = json.loads(found[1]) if found else {}
        tokens, every = int(asked.get("tokens", 1)), asked.get("every_ms", 0) / 1000
        usage = {"prompt_tokens": asked.get("prompt", 10), "completion_tokens": tokens}
        loop = asyncio.get_running_loop()
        due = loop.time() + asked.get("first_ms", 0) / 1000
        await _until(loop, due)
        if _STREAM.search(self._beginning) is None:
            await _until(loop, due + every * (tokens - 1))
            self._plain(json.dumps({"choices": [{"message": {"content": "t " * tokens}}], "usage": usage}).encode())
            return
        self.transport.write(STREAM_HEAD + CHUNK)
        for number in range(1, tokens):
            await _until(loop, due + every * number)
            self.transport.write(CHUNK)
        end = DONE
        if _USAGE.search(self._end):
            end = b'data: {"choices":[],"usage":%b}\n\n' % json.dumps(usage).encode() + DONE
        self.transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(end), end))

    def _plain(self, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        self.transport.write(head + body)


def _told(head: bytes) -> bytes:
    if b" /counts " in head:
        return json.dumps(counts).encode()
    return b"llamacpp:requests_processing %d\n" % counts["active"] if b" /metrics " in head else b"{}"


async def _until(loop: asyncio.AbstractEventLoop, due: float) -> None:
    left = due - loop.time()
    if left > 0:
        await asyncio.sleep(left)


async def _main(port: int, slot_count: int) -> None:
    global slots  # noqa: PLW0603 - the process is one engine
    slots = asyncio.Semaphore(slot_count) if slot_count else None
    server = await asyncio.get_running_loop().create_server(Serving, HOST, port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_main(int(sys.argv[1]), int(sys.argv[3]) if sys.argv[2:3] == ["--slots"] else 0))
