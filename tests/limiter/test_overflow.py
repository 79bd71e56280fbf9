"""More connections than fit are told so and closed; those that are served, and the probes, do not notice."""

from __future__ import annotations

import asyncio

import pytest

from penstock.limiter.overflow import ADMIN_CONNECTIONS_LIMIT, LINGERING_LIMIT, connection_limit

MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize(
    ("descriptors", "memory_bytes", "limit"),
    [
        (1024, None, 448),
        (1_048_576, None, 524_224),
        (1_048_576, 256 * MEBIBYTE, 4096),
        (1024, 256 * MEBIBYTE, 448),
        (64, None, 1),
    ],
    ids=["usual limit", "no memory limit", "memory is scarcer", "descriptors are scarcer", "hardly any"],
)
def test_the_limit_leaves_room_for_what_connections_cause(
    descriptors: int, memory_bytes: int | None, limit: int
) -> None:
    assert connection_limit(descriptors=descriptors, memory_bytes=memory_bytes) == limit


async def test_one_connection_too_many_gets_503_and_is_closed(few_connections) -> None:
    rig = few_connections
    kept = [await rig.connect() for _ in range(3)]
    await rig.until(lambda: len(rig.limiter.relay.connections) == 3)
    turned_away = await rig.connect()
    await turned_away.send(rig.post_bytes())
    reply = await turned_away.reply()
    assert (reply.status, reply.error["code"], reply.header("connection")) == (503, "overloaded", "close")
    assert reply.header("retry-after") in {"1", "2"}
    assert await turned_away.rest() == b""
    assert len(rig.limiter.relay.connections) == 3
    assert (await rig.admin("/healthz")).status == 200
    await kept[0].send(rig.post_bytes())
    assert (await kept[0].reply()).status == 200
    assert len(rig.engine.calls) == 1


async def test_room_is_taken_again_when_a_connection_ends(few_connections) -> None:
    rig = few_connections
    kept = [await rig.connect() for _ in range(3)]
    await rig.until(lambda: len(rig.limiter.relay.connections) == 3)
    kept[0].close()
    await rig.until(lambda: len(rig.limiter.relay.connections) == 2)
    assert (await rig.post()).status == 200


async def test_very_many_connections_too_many_are_all_closed(few_connections) -> None:
    rig = few_connections
    for _ in range(3):
        await rig.connect()
    await rig.until(lambda: len(rig.limiter.relay.connections) == 3)
    clients = [await rig.connect() for _ in range(3 * LINGERING_LIMIT)]
    answers = await asyncio.gather(*(client.rest() for client in clients))
    assert all(answer.startswith(b"HTTP/1.1 503") for answer in answers)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /he",
        b"PUT /limits HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n{",
        b"GET /drain HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["nothing", "half a head", "half a body", "a wrong token", "a request"],
)
async def test_probes_are_answered_though_strangers_hold_the_admin_port(rig, sent: bytes) -> None:
    held = [await rig.connect(rig.settings.admin_port) for _ in range(ADMIN_CONNECTIONS_LIMIT)]
    for client in held:
        await client.send(sent)
    await rig.until(lambda: len(rig.limiter.admin.connections) == ADMIN_CONNECTIONS_LIMIT)
    for path in ("/healthz", "/readyz", "/engine/alive"):
        assert (await rig.admin(path)).status == 200
    assert len(rig.limiter.admin.connections) <= ADMIN_CONNECTIONS_LIMIT


async def test_who_drains_the_replica_is_not_sent_away_for_strangers(rig) -> None:
    held = rig.hold()
    serving = await rig.begin()
    await rig.until(lambda: len(held.calls) == 1)
    draining = asyncio.create_task(rig.drain())
    await rig.until(lambda: not rig.limiter.relay.admits)
    for _ in range(ADMIN_CONNECTIONS_LIMIT + 5):
        await rig.connect(rig.settings.admin_port)
    await rig.until(lambda: len(rig.limiter.admin.connections) == ADMIN_CONNECTIONS_LIMIT)
    held.answer(0)
    assert (await serving.reply()).status == 200
    assert (await draining).body == b"drained\n"


@pytest.fixture
async def few_connections(settings, make_rig, monkeypatch):
    """A replica that takes three connections."""
    monkeypatch.setattr("penstock.limiter.limiter.connection_limit", lambda **_: 3)
    async with make_rig(settings) as rig:
        await rig.ready()
        yield rig
