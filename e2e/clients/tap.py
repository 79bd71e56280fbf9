"""What went over the wire: a relay between a client and a limiter that notes each try, its answer, and when they came.

A client that retries tells its application nothing about it, so tries are counted where they pass. The tap stands for a
Service too: it may send new connections to another replica, while open ones stay where they are.

Bytes pass as they are. A head is looked for only where one can begin, at the first byte of a read: clients send a
request's head in a write of its own or at the beginning of one, and the limiter does so with its answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import Self

from e2e.beside.waiting import wait_for

READ_BYTES = 64 * 1024
STOP_SECONDS = 10.0
MILLISECONDS_PER_SECOND = 1000


@dataclass
class Try:
    """One request as it passed.

    Attributes:
        connection: Number of the connection it came on.
        sent: When its head passed, on the monotonic clock.
        headers: Those of the request, names in lower case.
        status: Of the answer; None until there is one.
        answered: When the answer's head passed; None until there is one.
        answer: Headers of the answer, names in lower case.
    """

    connection: int
    sent: float
    headers: dict[str, str]
    status: int | None = None
    answered: float | None = None
    answer: dict[str, str] = field(default_factory=dict)

    @property
    def told_seconds(self) -> float | None:
        """How long the answer tells an SDK to wait; None when it does not."""
        value = self.answer.get("retry-after-ms")
        return None if value is None else float(value) / MILLISECONDS_PER_SECOND

    @property
    def told_whole_seconds(self) -> float | None:
        """The same for clients that know `Retry-After` only."""
        value = self.answer.get("retry-after")
        return None if value is None else float(value)


class Tap:
    """A port on loopback that leads to a limiter; a context manager.

    Attributes:
        target: Port that new connections lead to.
        tries: All requests, in the order of their heads.
    """

    def __init__(self, url: str) -> None:
        """Prepare a tap in front of a replica's URL."""
        self.lead_to(url)
        self.tries: list[Try] = []
        self._connections = 0
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._open: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        wait_for(lambda: self._port, "open tap")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_SECONDS)

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"http://127.0.0.1:{self._port}"

    def lead_to(self, url: str) -> None:
        """Send new connections to another replica from now on."""
        self.target = int(url.rpartition(":")[2])

    def wait_for_answers(self, count: int) -> None:
        """Wait until so many tries were answered."""
        wait_for(lambda: sum(one.status is not None for one in self.tries) >= count, f"answer to try {count}")

    def pauses(self) -> list[float]:
        """Return the seconds from each answer, or from a try that had none, to the try that followed it."""
        return [after.sent - (before.answered or before.sent) for before, after in pairwise(self.tries)]

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with await asyncio.start_server(self._accept, "127.0.0.1", 0) as server:
            self._port = server.sockets[0].getsockname()[1]
            await self._stop.wait()
        open_now = list(self._open)
        for writers in self._open.values():
            for writer in writers:
                writer.transport.abort()
        await asyncio.gather(*open_now)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Known from its first moment, so that a stop ends it whatever it waits for.
        self._connections += 1
        writers = [writer]
        self._open[self._loop.create_task(self._relay(self._connections, reader, writers))] = writers

    async def _relay(self, number: int, reader: asyncio.StreamReader, writers: list[asyncio.StreamWriter]) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await self._pass_on(number, reader, writers)
        finally:
            for each in writers:
                each.close()
            for each in writers:
                with contextlib.suppress(ConnectionError):
                    await each.wait_closed()
            del self._open[task]

    async def _pass_on(self, number: int, reader: asyncio.StreamReader, writers: list[asyncio.StreamWriter]) -> None:
        (writer,) = writers
        limiter_reader, limiter_writer = await asyncio.open_connection("127.0.0.1", self.target)
        writers.append(limiter_writer)
        ways = (
            asyncio.create_task(_pump(reader, limiter_writer, lambda data: self._request(number, data))),
            asyncio.create_task(_pump(limiter_reader, writer, lambda data: self._answer(number, data))),
        )
        # No client here ends one direction only: who ends one has left.
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for each in writers:
            each.close()
        await asyncio.gather(*ways)

    def _request(self, connection: int, data: bytes) -> None:
        if data.startswith((b"POST ", b"GET ")):
            self.tries.append(Try(connection, time.monotonic(), _fields(data)))

    def _answer(self, connection: int, data: bytes) -> None:
        waiting = [one for one in self.tries if one.connection == connection and one.status is None]
        while data.startswith(b"HTTP/1.1 100"):
            data = data.partition(b"\r\n\r\n")[2]
        if waiting and data.startswith(b"HTTP/1.1 "):
            one = waiting[0]
            one.answer, one.answered = _fields(data), time.monotonic()
            one.status = int(data[9:12])


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Callable[[bytes], None]) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(READ_BYTES):
            note(data)
            writer.write(data)
            await writer.drain()


def _fields(data: bytes) -> dict[str, str]:
    lines = data.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
    fields = (line.partition(":") for line in lines)
    return {name.lower(): value.strip() for name, _, value in fields}
