"""A whole replica: readiness, drain, the admin port, and 2,000 requests that end in every way."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import AsyncIterator

import pytest

from penstock.api.replica import ReplicaSettings
from penstock.engines.engine import for_type
from penstock.limiter.drain import Phase
from penstock.limiter.limiter import Limiter

ABORTS = int(os.environ.get("PENSTOCK_TEST_ABORTS", "2000"))
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b"a\r\ndata: {}\n\n\r\n"
LAST = b"0\r\n\r\n"


@pytest.fixture
async def lame_rig(settings: ReplicaSettings, make_rig) -> AsyncIterator:
    """A replica that is a lame duck for a while before it drains, and drains for a short time."""
    slow = settings.model_copy(update={"lame_duck_seconds": 1, "drain_timeout_seconds": 1})
    async with make_rig(slow) as rig:
        await rig.ready()
        yield rig


async def open_stream(rig):
    """Start a stream that goes on until the returned event is set."""
    go = asyncio.Event()

    async def stream(call) -> None:
        await call.send(SSE + EVENT)
        await go.wait()
        await call.send(EVENT + LAST)

    rig.engine.script = stream
    client = await rig.connect()
    await client.send(rig.post_bytes())
    await client.reader.readuntil(EVENT)
    return client, go


# ---- readiness


async def test_readiness_follows_the_engine(cold_rig) -> None:
    rig = cold_rig
    assert (await rig.admin("/readyz")).body == b"the engine is not healthy\n"
    assert (await rig.admin("/engine/started")).status == 503
    assert (await rig.admin("/engine/alive")).status == 200
    assert (await rig.admin("/healthz")).status == 200
    await rig.engine.start()
    await rig.ready()
    assert (await rig.admin("/readyz")).status == 200
    assert (await rig.admin("/engine/started")).status == 200
    await rig.engine.stop()
    await rig.until(lambda: bool(rig.limiter.not_ready()))
    assert (await rig.admin("/readyz")).status == 503


async def test_a_loading_engine_is_not_ready(cold_rig) -> None:
    cold_rig.engine.health = b"HTTP/1.1 503 Loading\r\nContent-Length: 0\r\n\r\n"
    await cold_rig.engine.start()
    await cold_rig.until(lambda: cold_rig.engine.health_calls >= 3)
    assert (await cold_rig.admin("/engine/started")).status == 503


async def test_an_engine_is_polled_slowly_once_it_is_ready(rig) -> None:
    before = rig.engine.health_calls
    await asyncio.sleep(0.5)
    assert rig.engine.health_calls - before <= 3


async def test_a_late_engine_stays_ready(rig) -> None:
    rig.engine.health = b""
    before = rig.engine.health_calls
    await rig.until(lambda: rig.engine.health_calls >= before + 2)
    assert rig.limiter.not_ready() == []
    assert rig.limiter.poller.view.looks["late"] >= 1


async def test_metrics_of_the_engine_are_served_until_they_are_old(rig) -> None:
    await rig.until(lambda: rig.limiter.poller.metrics is not None)
    assert (await rig.admin("/engine/metrics")).body == b"series 1\n"
    await rig.engine.stop()
    await rig.until(lambda: rig.limiter.poller.metrics is None)
    assert (await rig.admin("/engine/metrics")).status == 503


async def test_a_bad_policy_keeps_a_replica_unready_and_says_why(settings: ReplicaSettings, make_rig, tmp_path) -> None:
    (tmp_path / "policy.json").write_text("{")
    async with make_rig(settings) as rig:
        await rig.until(lambda: rig.limiter.poller.view.ready)
        reply = await rig.admin("/readyz")
        assert reply.status == 503
        assert b"policy.json is not JSON" in reply.body
        assert json.loads((await rig.admin("/state")).body)["policy"]["problem"]


# ---- admin


async def test_state_and_metrics_tell_what_is_in_flight(rig) -> None:
    _, go = await open_stream(rig)
    state = json.loads((await rig.admin("/state")).body)
    assert (state["inFlight"], state["drift"], state["drain"], state["ready"]) == (1, 0, "accepting", True)
    text = (await rig.admin("/metrics")).body.decode()
    assert "penstock_in_flight 1.0" in text
    assert "penstock_permit_drift 0.0" in text
    assert 'penstock_drain_state{state="accepting"} 1.0' in text
    go.set()
    await rig.settled()
    text = (await rig.admin("/metrics")).body.decode()
    assert 'penstock_finished_total{outcome="success"} 1.0' in text
    assert 'penstock_requests_total{class="generation",end="completed"} 1.0' in text
    assert "penstock_response_body_bytes_total 35.0" in text


@pytest.mark.parametrize(("path", "status"), [("/", 404), ("/v1/models", 404), ("/limits", 405)])
async def test_the_admin_port_has_its_own_paths_only(rig, path: str, status: int) -> None:
    assert (await rig.admin(path)).status == status


@pytest.mark.parametrize("headers", ["", "x-penstock-drain-token: wrong\r\n"], ids=["missing", "wrong"])
async def test_a_wrong_token_is_refused_late_and_counted(rig, headers: str) -> None:
    began = time.monotonic()
    reply = await rig.admin("/drain", headers=headers)
    assert reply.status == 401
    assert time.monotonic() - began >= 0.95
    assert rig.limiter.drainer.state.phase is Phase.ACCEPTING
    assert "penstock_drain_token_rejected_total 1.0" in (await rig.admin("/metrics")).body.decode()


# ---- drain


async def test_a_drain_waits_for_the_last_stream_and_then_stays_closed(rig) -> None:
    client, go = await open_stream(rig)
    drains = [asyncio.create_task(rig.drain()) for _ in range(3)]
    await rig.until(lambda: rig.limiter.drainer.state.phase is Phase.DRAINING)
    reply = await rig.post()
    assert (reply.status, reply.error["code"]) == (503, "draining")
    assert reply.header("connection") == "close"
    assert reply.header("retry-after") in {"1", "2"}
    assert not any(drain.done() for drain in drains)
    go.set()
    assert [(await drain).status for drain in drains] == [200, 200, 200]
    assert (await client.reader.readuntil(LAST)).endswith(EVENT + LAST)
    await asyncio.sleep(0.3)
    assert rig.limiter.drainer.state.phase is Phase.DRAINED
    assert (await rig.post()).status == 503
    assert (await rig.drain()).status == 200


async def test_a_request_whose_body_ends_after_the_drain_began_is_refused(rig) -> None:
    client = await rig.connect()
    await client.send(rig.post_bytes(b"{}")[:-1])
    await rig.until(lambda: rig.limiter.relay.budget.held_bytes > 0)
    assert (await rig.drain()).status == 200
    await client.send(b"}")
    reply = await client.reply()
    assert (reply.status, reply.error["code"], reply.header("connection")) == (503, "draining", "close")
    assert rig.engine.calls == []


async def test_a_drained_replica_looks_at_its_engine_often_so_that_no_restart_is_missed(settings, make_rig) -> None:
    async with make_rig(settings, poll_seconds=60.0) as rig:
        await rig.ready()
        assert (await rig.drain()).status == 200
        before = rig.engine.health_calls
        await rig.until(lambda: rig.engine.health_calls >= before + 3)


async def test_a_lame_duck_serves_but_is_not_ready_and_ends_connections(lame_rig) -> None:
    rig = lame_rig
    drain = asyncio.create_task(rig.drain())
    await rig.until(lambda: rig.limiter.drainer.state.phase is Phase.LAME_DUCK)
    assert (await rig.admin("/readyz")).status == 503
    reply = await rig.post()
    assert (reply.status, reply.header("connection")) == (200, "close")
    assert (await drain).status == 200


async def test_what_is_open_at_the_deadline_is_told_so(lame_rig) -> None:
    client, _ = await open_stream(lame_rig)
    assert (await lame_rig.drain()).status == 200
    rest = await client.rest()
    assert b'"code": "draining"' in rest
    assert rest.endswith(LAST)
    await lame_rig.settled()
    assert lame_rig.limiter.admission.gate.books.cancelled == 1


async def test_a_drain_without_an_engine_is_over_at_once(cold_rig) -> None:
    assert (await cold_rig.drain()).status == 200


async def test_an_engine_that_dies_ends_the_drain(rig) -> None:
    client, _ = await open_stream(rig)
    drain = asyncio.create_task(rig.drain())
    await rig.until(lambda: rig.limiter.drainer.state.phase is Phase.DRAINING)
    await rig.engine.stop()
    assert (await drain).status == 200
    assert b'"error"' in await client.rest()


async def test_a_drained_replica_reopens_when_its_engine_was_restarted(rig) -> None:
    assert (await rig.drain()).status == 200
    await rig.engine.stop()
    await rig.until(lambda: rig.limiter.drainer.state.phase is Phase.RESTARTING)
    await rig.engine.start()
    await rig.ready()
    assert (await rig.post()).status == 200


async def test_a_caller_that_stops_waiting_does_not_stop_the_drain(rig) -> None:
    _, go = await open_stream(rig)
    caller = await rig.connect(rig.settings.admin_port)
    await caller.send(f"GET /drain HTTP/1.1\r\nHost: x\r\nx-penstock-drain-token: {rig.token}\r\n\r\n".encode())
    await rig.until(lambda: rig.limiter.drainer.state.phase is Phase.DRAINING)
    caller.abort()
    go.set()
    await rig.until(lambda: rig.limiter.drainer.state.phase is Phase.DRAINED)


# ---- work in the background


async def test_a_poller_that_fails_ends_the_limiter_instead_of_serving_blindly(settings: ReplicaSettings) -> None:
    facts = for_type(settings.engine_type).facts
    limiter = Limiter(settings, facts=facts, body_budget_bytes=1024)

    def fail(_sight) -> None:
        raise ArithmeticError("a defect")

    limiter.poller.on_change = fail
    with pytest.raises(ArithmeticError, match="a defect"):
        async with asyncio.timeout(5):
            await limiter.run(host="127.0.0.1")


# ---- counting


async def test_requests_that_end_in_every_way_leave_no_permit_behind(rig) -> None:
    """Clients leave before, during and after the body, the head and the stream; engines fail in as many places."""
    rng = random.Random(3)

    async def misbehave(call) -> None:
        kind = rng.randrange(8)
        if kind == 0:
            call.writer.transport.abort()
        elif kind == 1:
            await call.send(SSE + EVENT)
            call.writer.transport.abort()
        elif kind == 2:
            await call.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
        elif kind == 3:
            await call.client_left()
        elif kind == 4:
            await call.send(SSE + EVENT + b"zz\r\n")
        elif kind == 5:
            await call.send(b"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n")
        else:
            await call.send(SSE)
            for _ in range(3):
                await call.send(EVENT)
                await asyncio.sleep(0)
            await call.send(LAST)

    rig.engine.script = misbehave
    request = rig.post_bytes(b'{"prompt": "%b"}' % (b"x" * 300))

    async def one() -> None:
        kind = rng.randrange(6)
        client = await rig.connect()
        if kind == 0:
            await client.send(request[: rng.randrange(1, len(request))])
        else:
            await client.send(request)
        if kind == 1:
            client.writer.write_eof()
        if kind < 4:
            await asyncio.sleep(rng.random() * 0.01)
        else:
            try:
                async with asyncio.timeout(0.2):
                    await client.reader.read(100_000)
            except (OSError, TimeoutError):
                pass
        client.abort() if rng.random() < 0.5 else client.close()

    for _ in range(0, ABORTS, 50):
        await asyncio.gather(*(one() for _ in range(50)))
    await rig.settled()
    gate = rig.limiter.admission.gate.books
    assert gate.admitted == gate.cancelled + sum(gate.finished.values())
    assert gate.admitted > ABORTS / 2
    assert gate.cancelled > 0
    assert all(gate.finished.values())
