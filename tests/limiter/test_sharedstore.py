"""Replicas that count together: exact while the store answers, and never held up when it does not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis import Redis

from e2e.redisserver import RedisServer
from penstock.admission.shed import Shed
from penstock.limiter import sharedstore
from penstock.limiter.refusal import Reason
from penstock.limiter.storeurl import StoreUrl, UrlError

DAY_SECONDS = 86_400
MANY = 1_000_000
PASSWORD = "s3cret-of-the-store"


def quota(limit: int, **more: object) -> dict[str, object]:
    return {"name": "q", "algorithm": "FixedWindow", "limit": limit, "windowSeconds": DAY_SECONDS} | more


@pytest.fixture
def server(redis_server: RedisServer) -> RedisServer:
    with Redis(port=redis_server.port) as client:
        client.flushall()
    return redis_server


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """One that a test may break."""
    server = RedisServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def store_file(tmp_path: Path) -> Path:
    return tmp_path / "store-url"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests wait for the store as long as a test needs to do something in between."""
    monkeypatch.setattr(sharedstore, "BUDGET_SECONDS", 8.0)


@pytest.fixture
def open_shared(open_rig, store_file: Path):
    """Open a replica that shares the store of a URL."""

    @asynccontextmanager
    async def run(url: str, *, wait: bool = True, settings_of: dict[str, object] | None = None, **admission: object):
        write(store_file, url)
        async with open_rig(settings_of={"store_url_path": str(store_file)} | (settings_of or {}), **admission) as rig:
            rig.store = rig.limiter.admission.store
            if wait:
                await rig.until(lambda: rig.store.in_use)
            yield rig

    return run


def write(file: Path, url: str) -> None:
    file.write_text(url + "\n")


def counted(server: RedisServer) -> int:
    """What the only fixed window in the store has counted."""
    with Redis(port=server.port) as client:
        keys = client.keys("penstock:*")
        assert len(keys) == 1
        return int(client.get(keys[0]).split()[6])


@pytest.mark.parametrize("per", ["Backend", "Tenant", "Address"])
async def test_a_shared_quota_is_counted_in_the_store_and_told(open_shared, server, per: str) -> None:
    async with open_shared(server.url, rateLimits=[quota(2, per=per)]) as rig:
        replies = [await rig.post() for _ in range(3)]
        assert [reply.status for reply in replies] == [200, 200, 429]
        assert [reply.header("x-ratelimit-remaining-requests") for reply in replies] == ["1", "0", "0"]
        assert replies[2].error["code"] == "rate_limit_exceeded"
        assert rig.limiter.admission.shed == {("normal", Shed.QUOTA): 1}
        assert counted(server) == 2
        assert rig.store.decided == {"store": 3, "local": 0}
        await rig.settled()


async def test_a_quota_of_the_replica_stays_in_the_replica(open_shared, server) -> None:
    async with open_shared(server.url, rateLimits=[quota(1, per="Replica")]) as rig:
        assert [(await rig.post()).status for _ in range(2)] == [200, 429]
        assert rig.store.decided == {"store": 0, "local": 0}  # neither decided: it is not about shared quotas


async def test_a_defect_after_the_answer_of_the_store_gives_the_charge_back(open_shared, server, monkeypatch) -> None:
    async with open_shared(server.url, rateLimits=[quota(5)]) as rig:

        def fail(*_args: object, **_more: object) -> None:
            raise RuntimeError("a defect")

        monkeypatch.setattr(rig.limiter.admission, "_charged", fail)
        client = await rig.begin()
        await rig.until(lambda: rig.store.decided["store"] == 1)
        await rig.settled()
        await rig.until(lambda: counted(server) == 0)
        client.reset()


async def test_what_the_store_refuses_costs_the_replicas_own_quota_nothing(open_shared, server) -> None:
    limits = [quota(1), quota(5, name="own", per="Replica")]
    async with open_shared(server.url, rateLimits=limits) as rig:
        assert [(await rig.post()).status for _ in range(4)] == [200, 429, 429, 429]
        (own,) = rig.limiter.admission.charges.quotas.view("default", "127.0.0.1", 0, shared=False)
        assert own.remaining == 4


async def test_the_estimate_is_corrected_in_the_store(open_shared, server) -> None:
    body = json.dumps({"usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}}).encode()

    async def answer(call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async with open_shared(server.url, rateLimits=[quota(MANY, unit="Tokens")]) as rig:
        rig.engine.script = answer
        assert (await rig.post(b'{"prompt": "hello", "max_tokens": 100}')).status == 200
        await rig.until(lambda: counted(server) == 12)


async def test_without_a_store_nothing_waits(open_rig) -> None:
    async with open_rig(rateLimits=[quota(2)]) as rig:
        assert [(await rig.post()).status for _ in range(3)] == [200, 200, 429]
        assert rig.limiter.admission.store.decided == {"store": 0, "local": 0}
        assert "store" not in rig.limiter.state()


async def test_shadow_counts_what_the_store_refuses_and_lets_it_pass(open_shared, server) -> None:
    async with open_shared(server.url, mode="Shadow", rateLimits=[quota(1)]) as rig:
        assert [(await rig.post()).status for _ in range(3)] == [200, 200, 200]
        assert rig.limiter.admission.shed == {("normal", Shed.QUOTA): 2}
        assert counted(server) == 1


async def test_a_pace_of_the_store_delays_requests(open_shared, server) -> None:
    paced = {"name": "q", "algorithm": "LeakyBucket", "limit": 10, "windowSeconds": 1}
    async with open_shared(server.url, rateLimits=[paced]) as rig:
        began = time.monotonic()
        replies = await asyncio.gather(*(rig.post() for _ in range(4)))
        assert [reply.status for reply in replies] == [200] * 4
        assert time.monotonic() - began > 0.28


# ---- what may happen while a request waits for the store


async def ask_frozen(rig, server: RedisServer):
    """Let a request wait for a store that hangs; return its client."""
    server.freeze()
    client = await rig.begin()
    await rig.until(lambda: len(rig.limiter.admission.room) == 1)
    await asyncio.sleep(0.05)
    return client


@pytest.mark.usefixtures("patient")
async def test_who_leaves_while_the_store_is_asked_pays_nothing(open_shared, own_server) -> None:
    async with open_shared(own_server.url, rateLimits=[quota(9), quota(9, name="own", per="Replica")]) as rig:
        client = await ask_frozen(rig, own_server)
        client.reset()
        await rig.until(lambda: len(rig.limiter.admission.room) == 0)
        own_server.thaw()
        assert (await rig.post()).status == 200
        await rig.until(lambda: counted(own_server) == 1)
        (own,) = rig.limiter.admission.charges.quotas.view("default", "127.0.0.1", 0, shared=False)
        assert own.remaining == 8


@pytest.mark.usefixtures("patient")
async def test_a_drain_waits_for_a_request_that_asks_and_an_end_refuses_it(open_shared, own_server) -> None:
    async with open_shared(own_server.url, rateLimits=[quota(9)]) as rig:
        client = await ask_frozen(rig, own_server)
        rig.limiter.relay.cut_all(Reason.DRAINING, "going away")
        assert (await client.reply()).status == 503
        own_server.thaw()
        assert (await rig.post()).status == 200
        await rig.until(lambda: counted(own_server) == 1)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("mode", ["Shadow", "Disabled"])
async def test_a_change_of_the_mode_lets_those_go_who_ask(open_shared, own_server, mode: str) -> None:
    async with open_shared(own_server.url, rateLimits=[quota(9)]) as rig:
        client = await ask_frozen(rig, own_server)
        rig.set_policy(admission={"mode": mode, "rateLimits": [quota(9)]})
        assert (await client.reply()).status == 200
        own_server.thaw()
        await rig.until(lambda: counted(own_server) == 0)


@pytest.mark.usefixtures("patient")
async def test_a_change_of_the_store_lets_those_decide_locally_who_ask(
    open_shared, own_server, server, store_file
) -> None:
    async with open_shared(own_server.url, rateLimits=[quota(9)]) as rig:
        client = await ask_frozen(rig, own_server)
        write(store_file, server.url)
        rig.limiter.admission.refresh_keys()
        assert (await client.reply()).status == 200
        own_server.thaw()
        await rig.until(lambda: rig.store.in_use)
        assert (await rig.post()).status == 200
        assert counted(server) == 1


async def test_the_policy_may_name_and_drop_the_store_while_the_replica_runs(open_rig, server) -> None:
    limits = [quota(3)]
    async with open_rig(rateLimits=limits) as rig:
        store = rig.limiter.admission.store
        rig.set_policy(admission={"rateLimits": limits}, sharedStoreUrl=f"redis://127.0.0.1:{server.port}/0")
        await rig.until(lambda: store.in_use)
        assert (await rig.post()).status == 200
        assert counted(server) == 1
        rig.set_policy(admission={"rateLimits": limits})
        assert not store.in_use
        assert [(await rig.post()).status for _ in range(4)] == [200, 200, 200, 429]
        assert counted(server) == 1


# ---- a store that does not do its part


async def served_at_once(rig, count: int = 20) -> None:
    """Let requests be decided without the store, none of them held up by it."""
    slowest = 0.0
    for _ in range(count):
        began = time.monotonic()
        assert (await rig.post()).status == 200
        slowest = max(slowest, time.monotonic() - began)
    assert slowest < 1.0


async def test_a_store_that_hangs_costs_one_budget_and_comes_back(open_shared, own_server, caplog) -> None:
    async with open_shared(own_server.url, rateLimits=[quota(MANY)]) as rig:
        own_server.freeze()
        await served_at_once(rig)
        assert not rig.store.in_use
        assert rig.store.decided["local"] == 20
        assert rig.limiter.state()["store"]["problem"] == "late"
        assert sum("not in use" in one.getMessage() for one in caplog.records) == 1
        own_server.thaw()
        await rig.until(lambda: rig.store.in_use)
        await rig.until(lambda: not rig.store.corrections)
        assert counted(own_server) == 0  # what was charged too late was given back
        assert (await rig.post()).status == 200
        assert counted(own_server) == 1


async def test_a_store_that_is_killed_is_missed_by_nobody_and_counts_again_when_it_is_back(
    open_shared, own_server
) -> None:
    async with open_shared(own_server.url, rateLimits=[quota(MANY)]) as rig:
        assert (await rig.post()).status == 200
        own_server.kill()
        await served_at_once(rig)
        assert not rig.store.in_use
        own_server.start()  # with nothing of what it knew, neither counts nor scripts
        await rig.until(lambda: rig.store.in_use)
        assert (await rig.post()).status == 200
        assert counted(own_server) == 1


async def test_scripts_that_the_store_has_lost_are_sent_again(open_shared, server) -> None:
    async with open_shared(server.url, rateLimits=[quota(MANY)]) as rig:
        with Redis(port=server.port) as client:
            client.script_flush()
        assert (await rig.post()).status == 200
        assert rig.store.failures["lost_scripts"] == 1
        await rig.until(lambda: rig.store.in_use)
        assert (await rig.post()).status == 200
        assert counted(server) == 1


async def test_a_store_that_is_slow_is_not_used(open_shared, server) -> None:
    async with (
        slow_way(server.port, seconds=0.03) as way,
        open_shared(f"redis://127.0.0.1:{way}/0", wait=False, rateLimits=[quota(MANY)]) as rig,
    ):
        await rig.until(lambda: rig.store.failures["slow"] > 0)
        await served_at_once(rig)
        assert not rig.store.in_use


async def test_a_store_that_becomes_slow_is_left(open_shared, server) -> None:
    async with (
        slow_way(server.port, seconds=0.0) as way,
        open_shared(f"redis://127.0.0.1:{way}/0", rateLimits=[quota(MANY)]) as rig,
    ):
        way.seconds = 0.06
        await served_at_once(rig)
        assert rig.store.failures["late"] >= 1
        way.seconds = 0.0
        await rig.until(lambda: rig.store.in_use)


async def test_what_a_late_answer_charged_is_given_back_on_its_own_connection(open_shared, server) -> None:
    async with (
        slow_way(server.port, seconds=0.0) as way,
        open_shared(f"redis://127.0.0.1:{way}/0", rateLimits=[quota(MANY)]) as rig,
    ):
        way.close()  # there will be no other connection
        way.seconds = 0.2
        assert (await rig.post()).status == 200
        assert rig.store.problem == "late"
        await rig.until(lambda: counted(server) == 1)
        await rig.until(lambda: counted(server) == 0)
        assert not rig.store.in_use


class Way(int):
    """A port that leads to the store in some time."""

    seconds = 0.0
    close: Callable[[], None]


@asynccontextmanager
async def slow_way(port: int, *, seconds: float) -> AsyncIterator[Way]:
    tasks = set()

    async def pass_on(reader, writer, *, slowly: bool) -> None:
        try:
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(65536):
                    if slowly:
                        await asyncio.sleep(way.seconds)
                    writer.write(data)
        finally:
            writer.close()

    async def serve(reader, writer) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        for task in (pass_on(reader, back, slowly=False), pass_on(there, writer, slowly=True)):
            tasks.add(asyncio.create_task(task))

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    way = Way(listening.sockets[0].getsockname()[1])
    way.seconds, way.close = seconds, listening.close
    try:
        yield way
    finally:
        listening.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # closed connections end with the next turn of the loop


async def test_a_wrong_password_is_said_never_shown_and_may_be_mended(open_shared, store_file, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    server = RedisServer(password=PASSWORD)
    server.start()
    try:
        wrong = server.url.replace(PASSWORD, "wr0ng-one")
        async with open_shared(wrong, wait=False, rateLimits=[quota(MANY)]) as rig:
            await rig.until(lambda: rig.store.failures["refused_password"] > 0)
            await served_at_once(rig, 3)
            write(store_file, server.url)
            rig.limiter.admission.refresh_keys()
            await rig.until(lambda: rig.store.in_use)
            assert (await rig.post()).status == 200
            told = caplog.text + json.dumps(rig.limiter.state()) + rig.limiter.metrics.render().decode()
            assert PASSWORD not in told
            assert "wr0ng-one" not in told
            assert f"127.0.0.1:{server.port}" in told
    finally:
        server.stop()


async def test_without_a_store_there_each_replica_has_its_share(open_shared, own_server) -> None:
    own_server.stop()
    async with open_shared(own_server.url, wait=False, rateLimits=[quota(4)]) as rig:
        rig.set_policy(admission={"rateLimits": [quota(4)]}, replicas=2)
        assert [(await rig.post()).status for _ in range(3)] == [200, 200, 429]
        assert rig.store.decided["local"] == 3


# ---- the URL


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://:p@h:7/3", "redis://h:7/3"),
        ("rediss://u:p@h", "rediss://h:6379/0"),
        ("redis://u:p@[::1]:7/", "redis://[::1]:7/"),
    ],
    ids=["password", "user", "IPv6"],
)
def test_a_url_is_shown_without_its_credentials(text: str, shown: str) -> None:
    url = StoreUrl.parse(text)
    assert url.shown == shown
    assert ":p@" not in repr(url)


@pytest.mark.parametrize(
    "text",
    ["", "http://h", "redis://", "redis://:p@h:x/0", "redis://:p@h/name", "redis://:p@h/0?ssl_cert_reqs=none"],
)
def test_what_is_no_url_of_a_store_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(UrlError) as caught:
        StoreUrl.parse(text)
    assert ":p@" not in str(caught.value)


async def test_a_large_body_does_not_use_up_the_time_of_the_store(open_shared, server) -> None:
    """Reading megabytes takes longer than the store may: its time begins after that."""
    quotas = [
        {"name": "t", "unit": "Tokens", "algorithm": "FixedWindow", "limit": 10**12, "windowSeconds": DAY_SECONDS}
    ]
    async with open_shared(server.url, rateLimits=quotas) as rig:
        rig.set_policy(maximumBodyMebibytes=32, admission={"rateLimits": quotas})
        text = "hello wörld " * (1024 * 1024)
        body = json.dumps(
            {"model": "demo", "stream": True, "messages": [{"role": "user", "content": text}]}, ensure_ascii=False
        )
        await rig.until(lambda: rig.store.in_use)
        for _ in range(3):
            assert (await rig.post(body.encode())).status == 200
        assert rig.store.in_use
        assert not any(rig.store.failures.values())
