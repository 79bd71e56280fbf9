"""Signals from limiters, read over real connections; what one does not tell is unknown, and nothing is ever raised."""

import asyncio
import json
import socket

import aiohttp
import pytest
from aiohttp import web

from penstock.api.engine import EngineType
from penstock.fleet import direct
from penstock.fleet.direct import STATE_LIMIT_BYTES, DirectSource, signals_of
from penstock.fleet.signals import HeldBy, Replica, ReplicaSignals, Signal, Subject

STATE = {
    "bootId": "b",
    "pushed": {"ratePerSecond": 2.5},
    "signals": {
        "waiting": 3, "running": 4.0, "kvCachePercent": 50.5, "engineAgeSeconds": 0.75, "heldBy": "rate",
        "queueWaitRatio": 1.25, "admittedPerSecond": 5, "limit": 8, "firstTokenMilliseconds": 120.0,
    },
}  # fmt: skip


def test_all_that_a_limiter_tells_is_read_with_its_age():
    assert signals_of(STATE) == ReplicaSignals(
        boot_id="b",
        pushed_rate=2.5,
        waiting=Signal(3.0, 0.75),
        running=Signal(4.0, 0.75),
        kv_cache_percent=Signal(50.5, 0.75),
        queue_wait_ratio=Signal(1.25, 0.0),
        admitted_per_second=Signal(5.0, 0.0),
        first_token_milliseconds=Signal(120.0, 0.0),
        limit=Signal(8.0, 0.0),
        held_by=HeldBy.RATE,
    )


def test_without_an_age_nothing_is_known_of_the_engine():
    found = signals_of({"signals": {"waiting": 3, "queueWaitRatio": 0.5}})
    assert (found.of_engine, found.queue_wait_ratio) == (False, Signal(0.5, 0.0))


@pytest.mark.parametrize("value", [None, "3", True, -1, float("nan"), float("inf"), [3], {}], ids=str)
def test_what_is_no_number_is_unknown(value):
    found = signals_of({"signals": {"waiting": value, "limit": value, "engineAgeSeconds": 1.0, "heldBy": value}})
    assert found == ReplicaSignals()


@pytest.mark.parametrize("state", [None, 7, "x", []], ids=repr)
def test_what_is_no_state_tells_nothing(state):
    assert signals_of(state) is None


@pytest.mark.parametrize("state", [{}, {"signals": 7}, {"pushed": [], "bootId": 7}], ids=repr)
def test_a_state_of_another_release_may_tell_nothing(state):
    assert signals_of(state) == ReplicaSignals()


async def answer(_request):
    return web.json_response(STATE)


@pytest.fixture
async def read(monkeypatch):
    """Read one replica whose `/state` is answered by a handler."""
    runners = []

    async def ask(handler, *, replicas=1, timeout_seconds=10.0):
        monkeypatch.setattr(direct, "TIMEOUT_SECONDS", timeout_seconds)
        app = web.Application()
        app.router.add_get("/state", handler)
        app.router.add_get("/elsewhere", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        subject = Subject(
            namespace="team",
            engine=EngineType.VLLM,
            replicas=tuple(Replica(f"chat-{n}", f"u{n}", "127.0.0.1", ready=True) for n in range(replicas)),
        )
        async with aiohttp.ClientSession() as session:
            return await DirectSource(session, port=port).read(subject)

    yield ask
    for runner in runners:
        await runner.cleanup()


async def hang(_request):
    await asyncio.sleep(0.5)
    return web.json_response(STATE)


async def endless(request):
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(3 * STATE_LIMIT_BYTES // 1024):
        await response.write(b" " * 1024)
    return response


async def test_replicas_are_read_side_by_side(read):
    found = await read(answer, replicas=40)
    assert set(found) == {f"chat-{n}" for n in range(40)}
    assert found["chat-7"] == signals_of(STATE)


@pytest.mark.parametrize(
    "handler",
    [
        hang,
        endless,
        lambda _request: web.Response(text="no JSON"),
        lambda _request: web.Response(text="[" * 50_000),
        lambda _request: web.Response(body=b"\xff"),
        lambda _request: web.Response(text=json.dumps(STATE), status=503),
        lambda _request: web.HTTPFound("/elsewhere"),
    ],
    ids=["hangs", "does not end", "no JSON", "deep", "no text", "an error", "a redirect"],
)
async def test_a_limiter_that_does_not_answer_well_is_left_out(read, handler):
    async def serve(request):
        result = handler(request)
        return await result if asyncio.iscoroutine(result) else result

    assert await read(serve, timeout_seconds=0.2) == {}


async def test_one_that_is_not_there_is_left_out():
    replicas = (Replica("chat-0", "u", "127.0.0.1", ready=True),)
    async with aiohttp.ClientSession() as session:
        subject = Subject(namespace="team", engine=EngineType.VLLM, replicas=replicas)
        assert await DirectSource(session, port=1).read(subject) == {}


async def test_silent_limiters_hold_up_nobody_else(monkeypatch):
    monkeypatch.setattr(direct, "TIMEOUT_SECONDS", 0.5)
    app = web.Application()
    app.router.add_get("/state", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    subjects = [
        Subject(
            namespace="team",
            engine=EngineType.VLLM,
            replicas=tuple(Replica(f"{address}-{n}", f"{address}-{n}", address, ready=True) for n in range(replicas)),
        )
        for address, replicas in (("127.0.0.2", 70), ("127.0.0.1", 1))
    ]
    silent, healthy = subjects
    with socket.create_server(("127.0.0.2", port), backlog=200):
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            source = DirectSource(session, port=port)
            await source.read(silent)
            pending = asyncio.create_task(source.read(silent))
            await asyncio.sleep(0.05)
            assert len(await source.read(healthy)) == 1
            assert not pending.done()
            assert await pending == {}
    await runner.cleanup()
