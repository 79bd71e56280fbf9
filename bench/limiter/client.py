"""Clients of a limiter: one request, what came of it and when.

Connections are used again as SDKs do. Times are seconds by the monotonic clock.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

HOST = "127.0.0.1"
PATH = "/v1/chat/completions"
READ_LIMIT_BYTES = 1 << 20


@dataclass
class Seen:
    """What came of one request.

    Attributes:
        status: 0 when no answer came.
        headers: Of the answer, lower-case.
        first: From sending to the answer's head or, for a stream, its first token.
        gaps: Between the tokens of a stream.
        whole: Whether the answer was complete.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    first: float = 0.0
    gaps: list[float] = field(default_factory=list)
    body: bytes = b""
    whole: bool = False

    @property
    def tokens(self) -> int:
        """Return how many pieces of a stream came."""
        return len(self.gaps) + 1 if self.status == 200 else 0


def payload(
    *,
    first_ms: float = 0,
    tokens: int = 1,
    every_ms: float = 0,
    prompt: int = 10,
    stream: bool = True,
    pad: str = "",
    **more: object,
) -> bytes:
    """Return a request's body for `bench.limiter.engine`."""
    bench = {"first_ms": first_ms, "tokens": tokens, "every_ms": every_ms, "prompt": prompt}
    messages = [{"role": "user", "content": pad or "hello"}]
    return json.dumps({"bench": bench, "stream": stream, "model": "bench", **more, "messages": messages}).encode()


def request(body: bytes, *, key: str = "", headers: Mapping[str, str] | None = None) -> bytes:
    """Return a request's bytes."""
    lines = [f"POST {PATH} HTTP/1.1", "Host: bench", f"Content-Length: {len(body)}"]
    if key:
        lines.append(f"Authorization: Bearer {key}")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Connections:
    """Connections to one port that are used again."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, raw: bytes) -> Seen:
        """Send a request and read its answer; an error of the connection ends it early."""
        seen = Seen()
        try:
            reader, writer = self._idle.pop() if self._idle else await self._open()
        except OSError:
            return seen
        reusable = False
        try:
            writer.write(raw)
            reusable = await read(reader, seen, time.monotonic())
        except (OSError, asyncio.IncompleteReadError, ValueError):
            seen.whole = False
        finally:
            if reusable:
                self._idle.append((reader, writer))
            else:
                writer.transport.abort()
        return seen

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(HOST, self._port, limit=READ_LIMIT_BYTES)

    def close(self) -> None:
        """Close what is idle."""
        for _, writer in self._idle:
            writer.transport.abort()
        self._idle.clear()


async def read(reader: asyncio.StreamReader, seen: Seen, sent: float) -> bool:
    """Read one answer and return whether its connection can be used again."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    seen.first = time.monotonic() - sent
    first, *lines = head.split("\r\n")
    seen.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    seen.status = int(first.split(" ")[1])
    if seen.headers.get("transfer-encoding") == "chunked":
        await _read_chunks(reader, seen, sent)
    else:
        seen.body = await reader.readexactly(int(seen.headers.get("content-length", "0")))
    seen.whole = True
    return seen.headers.get("connection", "").lower() != "close"


async def _read_chunks(reader: asyncio.StreamReader, seen: Seen, sent: float) -> None:
    last = 0.0
    while True:
        size = int(await reader.readuntil(b"\r\n"), 16)
        chunk = await reader.readexactly(size + 2)
        if not size:
            return
        if b'"delta"' in chunk:
            now = time.monotonic()
            if last:
                seen.gaps.append(now - last)
            else:
                seen.first = now - sent
            last = now
        elif b'"error"' in chunk:
            seen.body += chunk


def percentile(values: list[float], part: float) -> float:
    """Return the value that so many of the values do not exceed; 0 without any."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0
