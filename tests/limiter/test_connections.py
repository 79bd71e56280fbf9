"""Quotas of connections as clients meet them."""

from __future__ import annotations

import asyncio
import time

import pytest

from penstock.admission.shed import Shed

DAY_SECONDS = 86_400
GET_HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


def connections(limit: int, unit: str = "Connections", **more: object) -> dict[str, object]:
    shape = {"algorithm": "FixedWindow", "windowSeconds": DAY_SECONDS}
    return {"name": "c", "per": "Address", "unit": unit, "limit": limit} | shape | more


async def test_a_connection_too_many_is_told_so_before_its_body_is_read_and_ends(open_rig) -> None:
    async with open_rig(rateLimits=[connections(2)]) as rig:
        assert [(await rig.post()).status for _ in range(2)] == [200, 200]
        client = await rig.connect()
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        reply = await client.reply()
        assert (reply.status, reply.header("connection")) == (429, "close")
        assert "Quota c of connections" in str(reply.error["message"])
        assert await client.rest() == b""
        assert len(rig.engine.calls) == 2
        assert rig.limiter.admission.shed == {("normal", Shed.QUOTA): 1}


async def test_requests_on_an_old_connection_cost_no_other(open_rig) -> None:
    async with open_rig(rateLimits=[connections(1)]) as rig:
        client = await rig.connect()
        for _ in range(3):
            await client.send(rig.post_bytes())
            assert (await client.reply()).status == 200


async def test_open_connections_are_counted_until_they_end(open_rig) -> None:
    async with open_rig(rateLimits=[connections(2, "OpenConnections")]) as rig:
        first, second = [await rig.connect() for _ in range(2)]
        await rig.until(lambda: len(rig.limiter.relay.connections) == 2)
        assert (await rig.post()).status == 429
        first.close()
        await rig.until(lambda: len(rig.limiter.relay.connections) == 1)
        assert (await rig.post()).status == 200
        await second.send(rig.post_bytes())
        assert (await second.reply()).status == 200


async def test_what_is_never_limited_is_answered_on_any_connection(open_rig) -> None:
    async with open_rig(rateLimits=[connections(1, "OpenConnections")]) as rig:
        await rig.connect()
        await rig.until(lambda: len(rig.limiter.relay.connections) == 1)
        client = await rig.connect()
        await client.send(GET_HEALTH)
        assert (await client.reply()).status == 200
        await client.send(rig.post_bytes())
        assert (await client.reply()).status == 429
        assert (await rig.admin("/readyz")).status == 200


async def test_a_trusted_proxy_is_no_address(open_rig) -> None:
    tenants = {"identifyBy": "ClientAddress", "trustedProxies": ["127.0.0.0/8"], "default": {}}
    async with open_rig(rateLimits=[connections(1)], tenants=tenants) as rig:
        assert [(await rig.post()).status for _ in range(3)] == [200] * 3


@pytest.mark.parametrize(("mode", "counted"), [("Shadow", 2), ("Disabled", 0)])
async def test_nothing_is_refused_when_decisions_are_not_enforced(open_rig, mode: str, counted: int) -> None:
    async with open_rig(mode=mode, rateLimits=[connections(1)]) as rig:
        assert [(await rig.post()).status for _ in range(3)] == [200] * 3
        assert sum(rig.limiter.admission.shed.values()) == counted


async def test_an_even_pace_lets_connections_be_read_one_after_the_other(open_rig) -> None:
    paced = connections(10, algorithm="LeakyBucket", windowSeconds=1)
    async with open_rig(rateLimits=[paced]) as rig:
        began = time.monotonic()
        replies = await asyncio.gather(*(rig.post() for _ in range(4)))
        assert [reply.status for reply in replies] == [200] * 4
        assert time.monotonic() - began > 0.28
