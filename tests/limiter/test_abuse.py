"""Crowds that mean harm, at a real process with few descriptors: who is inside is served, memory is flat.

One slow or endless client is shown in `test_connection`; here they are as many as the limiter lets in, and more.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from bench.limiter.replica import HOST, Place, admin, metrics, place, process
from bench.relay.processes import Pinned, free_ports, two_cores
from penstock.limiter.overflow import connection_limit

DESCRIPTORS = 600
INSIDE = connection_limit(descriptors=DESCRIPTORS, memory_bytes=None)
CROWD = INSIDE + 200
GROWTH_LIMIT_MEBIBYTES = 24
MEBIBYTE = 1024 * 1024
PATIENCE_SECONDS = 20.0
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
CROWDS: dict[str, bytes] = {
    "idle": b"",
    "half a head": HEAD,
    "a large head without end": HEAD + b"X: " + b"a" * 60_000,
    "a body that does not come": HEAD + b"Content-Length: 1000000\r\n\r\n{",
    "half a body": HEAD + b"Content-Length: 1000000\r\n\r\n" + b" " * 500_000,
    "chunks that drip": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 2000,
}


@pytest.fixture
async def engine_port(engine_at: Callable) -> AsyncIterator[int]:
    engine = await engine_at(free_ports(1)[0])
    yield engine.port
    await engine.stop()


@pytest.fixture
async def served(engine_port: int, tmp_path: Path) -> AsyncIterator[tuple[Place, Pinned]]:
    """A limiter process with few descriptors and a small body budget; memory as a container would be given."""
    where = place(tmp_path, engine_port=engine_port, policy={"maximumBodyMebibytes": 1})
    limits = ("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}")
    opening = process(where, core=two_cores()[0], wrapped_by=limits)
    started = await asyncio.to_thread(opening.__enter__)
    yield where, started
    await asyncio.to_thread(opening.__exit__, None, None, None)


async def ask(where: Place) -> int:
    reader, writer = await asyncio.open_connection(HOST, where.port)
    return await ask_on(reader, writer)


async def ask_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    writer.write(HEAD + b"Content-Length: 2\r\nConnection: close\r\n\r\n{}")
    async with asyncio.timeout(PATIENCE_SECONDS):
        answer = await reader.read()
    writer.close()
    return int(answer[9:12])


async def come(where: Place, sent: bytes) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection(HOST, where.port)
    writer.write(sent)
    return writer


@pytest.mark.parametrize("sent", CROWDS.values(), ids=CROWDS.keys())
async def test_a_crowd_leaves_room_for_those_inside_and_takes_bounded_memory(served, sent: bytes) -> None:
    where, started = served
    allow_descriptors()
    assert await ask(where) == 200
    before = started.resident_bytes()
    friend = await asyncio.open_connection(HOST, where.port)
    crowd = [await come(where, sent) for _ in range(CROWD)]
    await asyncio.sleep(1.0)
    await asyncio.to_thread(admin, where, "/healthz")  # raises unless it is answered with 200
    seen = await asyncio.to_thread(metrics, where)
    assert seen["penstock_client_connections"] <= INSIDE
    assert seen['penstock_refusals_total{reason="overloaded"}'] >= CROWD - INSIDE
    assert await ask_on(*friend) in {200, 503}  # 503 where the crowd holds all memory of bodies
    budget = seen["penstock_request_body_bytes"]
    grown = started.resident_bytes() - before - budget
    assert grown / MEBIBYTE < GROWTH_LIMIT_MEBIBYTES
    for writer in crowd:
        writer.transport.abort()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await asyncio.to_thread(metrics, where))["penstock_client_connections"]:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.1)
    assert (await asyncio.to_thread(metrics, where))["penstock_request_body_bytes"] == 0
    assert await ask(where) == 200


def allow_descriptors() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
