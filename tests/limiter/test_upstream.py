"""The pool of connections to the engine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from penstock.limiter.loop import running_loop
from penstock.limiter.upstream import IDLE_LIMIT, IDLE_MARGIN_SECONDS, Pool, Upstream

KEEP_SECONDS = 0.1


@pytest.fixture
async def pool(settings, engine_at) -> AsyncIterator[Pool]:
    engine = await engine_at(settings.engine_port)
    pool = Pool(
        "127.0.0.1",
        settings.engine_port,
        idle_seconds=IDLE_MARGIN_SECONDS + KEEP_SECONDS,
        loop=running_loop(),
    )
    yield pool
    pool.close()
    await engine.stop()


async def connect(pool: Pool) -> Upstream:
    opened = asyncio.get_running_loop().create_future()
    pool.open(opened.set_result, opened.set_exception)
    return await opened


async def test_an_idle_connection_is_taken_once(pool: Pool) -> None:
    upstream = await connect(pool)
    pool.give(upstream)
    assert pool.take() is upstream
    assert pool.take() is None
    upstream.abort()


async def test_a_connection_that_was_idle_too_long_is_closed_and_not_taken(pool: Pool) -> None:
    upstream = await connect(pool)
    pool.give(upstream)
    async with asyncio.timeout(5):
        while len(pool):  # noqa: ASYNC110 - the pool has no event for it
            await asyncio.sleep(0.01)
    assert upstream.transport.is_closing()
    assert pool.take() is None


async def test_a_connection_that_is_too_old_is_not_taken_even_before_it_is_swept(pool: Pool) -> None:
    upstream = await connect(pool)
    pool.give(upstream)
    upstream.idle_since -= 10 * KEEP_SECONDS
    assert pool.take() is None
    assert upstream.transport.is_closing()


async def test_a_connection_that_a_slow_client_had_paused_reads_again(pool: Pool) -> None:
    upstream = await connect(pool)
    upstream.transport.pause_reading()
    pool.give(upstream)
    assert upstream.transport.is_reading()


async def test_the_pool_is_bounded(pool: Pool) -> None:
    for _ in range(IDLE_LIMIT + 3):
        pool.give(await connect(pool))
    assert len(pool) <= IDLE_LIMIT


async def test_bytes_that_nobody_asked_for_end_a_connection(pool: Pool) -> None:
    upstream = await connect(pool)
    pool.give(upstream)
    upstream.data_received(b"HTTP/1.1 200 OK\r\n\r\n")
    assert upstream.transport.is_closing()
    assert pool.take() is None


@pytest.mark.parametrize("act", [socket.socket.close, lambda peer: peer.send(b"x")], ids=["closed", "unasked bytes"])
async def test_what_the_kernel_knows_already_counts_when_a_connection_is_taken(
    act: Callable[[socket.socket], object],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pool = Pool("127.0.0.1", listener.getsockname()[1], idle_seconds=60, loop=running_loop())
        upstream = await connect(pool)
        with listener.accept()[0] as peer:
            pool.give(upstream)
            act(peer)  # and no turn of the event loop after it
            assert pool.take() is None
    pool.close()


async def test_a_connection_in_use_passes_bytes_and_its_end_on(pool: Pool) -> None:
    seen: list[object] = []
    upstream = await connect(pool)
    ended = asyncio.Event()

    def lost(error: Exception | None) -> None:
        seen.append(error)
        ended.set()

    upstream.attach(seen.append, lost)
    upstream.transport.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(5):
        while not seen:  # noqa: ASYNC110 - the callable itself is under test
            await asyncio.sleep(0.01)
        upstream.transport.close()
        await ended.wait()
    assert b"series 1" in seen[0]
    assert seen[1:] == [None]
