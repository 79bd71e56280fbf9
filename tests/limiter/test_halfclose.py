"""Clients that ended their sending side while the engine is silent: those that left, and those that wait."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from collections.abc import AsyncIterator

import pytest

from penstock.engines.facts import RequestClass
from penstock.limiter.ends import End
from penstock.limiter.service import Times
from penstock.limiter.tcp import QUESTIONS

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
BODIES = {
    "within a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n100\r\nbegin",
    "within a length": HEAD + b"Content-Length: 8\r\n\r\nbegin",
    "until the engine closes": HEAD + b"\r\nbegin",
}
QUESTION_SECONDS = 1
FORGOTTEN_SECONDS = 1
"""After which the client's kernel no longer answers for a connection that was closed; else it takes a minute."""


@pytest.fixture
async def asking_rig(settings, make_rig) -> AsyncIterator[object]:
    """A replica that asks silent clients each second whether they are there."""
    async with make_rig(settings, times=dataclasses.replace(Times(), question_seconds=QUESTION_SECONDS)) as rig:
        await rig.ready()
        yield rig


async def half_closed(rig, begin: bytes):
    """Return a client that sends no more and has read all there is of its answer."""
    client = await rig.begin()
    assert (await client.reader.readuntil(b"begin")).endswith(begin)
    client.writer.write_eof()
    (connection,) = rig.limiter.relay.connections
    await rig.until(lambda: connection.gone)
    return client


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_one_that_left_is_noticed_where_nothing_can_be_sent(asking_rig, body: bytes) -> None:
    rig = asking_rig
    left = asyncio.Event()

    async def script(call) -> None:
        await call.send(body)
        await call.client_left()
        left.set()

    rig.engine.script = script
    client = await half_closed(rig, b"begin")
    client.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, FORGOTTEN_SECONDS)
    client.abort()
    await rig.settled()
    await rig.until(lambda: left.is_set() and not rig.limiter.relay.connections)
    assert rig.limiter.relay.ends[RequestClass.GENERATION, End.CLIENT_GONE] == 1


async def test_one_that_waits_is_served_however_long_the_engine_is_silent(asking_rig) -> None:
    rig = asking_rig

    async def script(call) -> None:
        await call.send(BODIES["within a length"])
        await asyncio.sleep(QUESTION_SECONDS * (QUESTIONS + 2))
        await call.send(b"end")

    rig.engine.script = script
    client = await half_closed(rig, b"begin")
    assert await client.rest() == b"end"
    await rig.settled()
    assert rig.limiter.relay.ends[RequestClass.GENERATION, End.COMPLETED] == 1


async def test_every_client_is_asked(rig) -> None:
    await rig.connect()
    await rig.until(lambda: bool(rig.limiter.relay.connections))
    (connection,) = rig.limiter.relay.connections
    sock = connection.transport.get_extra_info("socket")
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == Times().question_seconds
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == QUESTIONS
