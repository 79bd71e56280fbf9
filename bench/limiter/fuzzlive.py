"""The relay between two hostile sides: clients and an engine that send nearly HTTP, stall, reset and leave.

A case is a crowd of clients at a limiter in this process. Each sends something damaged and behaves in one of several
bad ways; the engine answers whatever comes with something damaged, or not. Nothing about the answers is judged. What is
judged is the limiter afterwards: nothing raised, nothing hangs, and connections, permits, charges of the body budget
and descriptors are all given back.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.limiter.differential import POLICY
from bench.limiter.fuzztargets import ANSWERS, REQUESTS
from bench.limiter.mutation import mutated, pieces
from bench.limiter.replica import HOST, inside, place
from penstock.limiter.limiter import Limiter
from penstock.limiter.loop import Loop
from penstock.limiter.service import Times

CROWD = 24
PATIENCE_SECONDS = 1.0
SETTLE_SECONDS = 8.0
REST_SECONDS = 0.005
READ_BYTES = 1 << 16
CONCURRENCY = 8  # below the crowd, so that some wait
NEVER_SECONDS = 60.0
DESCRIPTORS_SLACK = 8
TIMES = Times(
    idle_seconds=0.4,
    head_seconds=0.3,
    body_step_seconds=0.3,
    write_stall_seconds=0.4,
    linger_seconds=0.4,
    linger_silence_seconds=0.15,
    question_seconds=1,
    engine_read_seconds=0.5,
)
FORGOTTEN_SECONDS = 1
"""After which the kernel no longer answers for a client that has left; else an end is noticed only after a minute where
the engine is silent and nothing can be sent."""
_RESET = struct.pack("ii", 1, 0)


class Broken(Exception):  # noqa: N818 - a finding, not a fault of the program
    """A promise was broken by the case of this number."""

    def __init__(self, number: int, problem: str) -> None:
        super().__init__(problem)
        self.number = number


def run(*, seed: int, first: int, seconds: float, folder: Path) -> int:
    """Try cases from a number on until the time is up, at least one, and return how many.

    Raises:
        Broken: a promise was broken.
    """
    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(_run(seed, first, seconds, folder))


async def _run(seed: int, first: int, seconds: float, folder: Path) -> int:
    problems: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: problems.append(_told(context)))
    engine = _Engine()
    server = await asyncio.start_server(engine.serve, HOST, 0)
    policy = {**POLICY, "maximumBodyMebibytes": 1}
    where = place(folder, engine_port=server.sockets[0].getsockname()[1], policy=policy, concurrency=CONCURRENCY)
    number = first
    deadline = time.monotonic() + seconds
    try:
        async with inside(where, times=TIMES) as limiter:
            descriptors = _descriptors()
            while number == first or time.monotonic() < deadline:
                await _case(engine, limiter, where.port, seed, number)
                await _settle(limiter, number)
                if problems:
                    raise Broken(number, problems[0])
                number += 1
            limiter.relay.pool.close()
            await engine.end()
            await asyncio.sleep(0.2)
            if _descriptors() > descriptors + DESCRIPTORS_SLACK:
                raise Broken(number - 1, f"{descriptors} descriptors before, {_descriptors()} after")
    finally:
        server.close()
        await engine.end()
    return number - first


async def _case(engine: _Engine, limiter: Limiter, port: int, seed: int, number: int) -> None:
    chance = random.Random(f"live/{seed}/{number}")
    engine.chance = chance
    limiter.relay.budget.limit_bytes = chance.choice((64_000, 1_000_000, 64_000_000))
    tasks = [asyncio.create_task(_client(random.Random(chance.random()), port)) for _ in range(CROWD)]
    _, late = await asyncio.wait(tasks, timeout=SETTLE_SECONDS)
    if late:
        raise Broken(number, f"{len(late)} clients were never let go")
    for task in tasks:
        task.result()


async def _client(chance: random.Random, port: int) -> None:
    data = b"".join(mutated(chance, chance.choice(REQUESTS), REQUESTS) for _ in range(chance.choice((1, 1, 1, 2, 5))))
    try:
        reader, writer = await asyncio.open_connection(HOST, port, limit=chance.choice((1, 1 << 16)))
    except OSError:
        return
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, FORGOTTEN_SECONDS)
    reading = asyncio.create_task(_swallow(reader)) if chance.random() < 0.8 else None
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            for piece in pieces(chance, data):
                writer.write(piece)
                await writer.drain()
                if chance.random() < 0.1:
                    await asyncio.sleep(REST_SECONDS)
            if chance.random() < 0.3:
                writer.write_eof()
            if reading is not None and chance.random() < 0.6:
                await asyncio.shield(reading)
            await asyncio.sleep(chance.choice((0, REST_SECONDS, 0.1)))
    if chance.random() < 0.4:
        sock = writer.get_extra_info("socket")
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
    if reading is not None:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _swallow(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        while await reader.read(READ_BYTES):
            pass


class _Engine:
    def __init__(self) -> None:
        self.chance = random.Random(0)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith((b"GET /health ", b"GET /metrics ")):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            return True
        chance = self.chance
        ways: tuple[tuple[int, Callable[..., Awaitable[bool]]], ...] = (
            (8, self._answer), (1, self._silence), (1, self._reset), (1, self._flood), (1, self._interim),
        )  # fmt: skip
        if chance.random() < 0.7:
            with suppress(TimeoutError):
                async with asyncio.timeout(REST_SECONDS):
                    await reader.read(READ_BYTES)
        (way,) = chance.choices([way for _, way in ways], [weight for weight, _ in ways])
        return await way(writer)

    async def _answer(self, writer: asyncio.StreamWriter) -> bool:
        chance = self.chance
        data = mutated(chance, chance.choice(ANSWERS), ANSWERS)
        for piece in pieces(chance, data):
            writer.write(piece)
            await writer.drain()
            if chance.random() < 0.1:
                await asyncio.sleep(REST_SECONDS)
        return chance.random() < 0.5

    async def _silence(self, _writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(self.chance.choice((REST_SECONDS, NEVER_SECONDS)))
        return False

    async def _reset(self, writer: asyncio.StreamWriter) -> bool:
        sock = writer.get_extra_info("socket")
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        return False

    async def _flood(self, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n")
        for _ in range(200):
            writer.write(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
            await writer.drain()
        return False

    async def _interim(self, writer: asyncio.StreamWriter) -> bool:
        for _ in range(self.chance.choice((1, 50, 5000))):
            writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        await writer.drain()
        return await self._answer(writer)


async def _settle(limiter: Limiter, number: int) -> None:
    """Wait until everything is given back."""
    relay, books = limiter.relay, limiter.admission.gate.books
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        left = {
            "connections": len(relay.connections),
            "exchanges": len(relay.exchanges),
            "in flight": books.in_flight,
            "waiting": len(limiter.admission.room),
            "body bytes": relay.budget.held_bytes,
            "drift": books.drift,
        }
        if not any(left.values()):
            return
        if time.monotonic() > deadline:
            raise Broken(number, f"not given back: {json.dumps(left)}")
        await asyncio.sleep(0.02)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _told(context: dict[str, Any]) -> str:
    return f"{context.get('message')}: {context.get('exception')!r}"
