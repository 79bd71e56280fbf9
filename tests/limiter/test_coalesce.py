"""Requests that are one: the engine runs once, and every client gets the whole answer."""

from __future__ import annotations

import asyncio
import json
import os
import random
from typing import Any

import openai
import pytest

from penstock.admission.idempotency import Coalesced
from penstock.limiter import run as run_module
from penstock.limiter.drain import Phase
from penstock.limiter.ends import End

ROUNDS = int(os.environ.get("PENSTOCK_TEST_ABORTS", "2000")) // 4
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n'
DONE = b"data: [DONE]\n\n"
LAST = b"0\r\n\r\n"
KEY = "Idempotency-Key: order-17\r\n"
SDK_KEY = "Idempotency-Key: stainless-python-retry-42a16cd2-93af-4312-90d1-567a3acf2f8a\r\n"
RETRY = "x-stainless-retry-count: 1\r\n"
TOKENS_A_MINUTE = {"name": "tokens", "scope": "Backend", "unit": "Tokens", "limit": 10_000, "windowSeconds": 60}
ONE_REQUEST = {"name": "one", "scope": "Backend", "unit": "Requests", "limit": 1, "windowSeconds": 60}
MESSAGES = "/v1/messages"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Stream:
    """An engine that streams as it is told, to every request alike."""

    def __init__(self, first: bytes = EVENT) -> None:
        self.calls: list[Any] = []
        self.left = 0
        self._first = first
        self._more = asyncio.Event()
        self._todo: list[bytes] = []

    async def __call__(self, call: Any) -> None:
        self.calls.append(call)
        gone = asyncio.ensure_future(call.client_left())
        await call.send(SSE + (chunk(self._first) if self._first else b""))
        try:
            while True:
                more = asyncio.ensure_future(self._more.wait())
                await asyncio.wait([more, gone], return_when=asyncio.FIRST_COMPLETED)
                more.cancel()
                if gone.done():
                    self.left += 1
                    return
                self._more.clear()
                while self._todo:
                    data = self._todo.pop(0)
                    await call.send(chunk(data) if data else LAST)
                    if not data:
                        call.writer.close()  # the watcher has read this connection
                        return
        finally:
            gone.cancel()

    def say(self, *data: bytes) -> None:
        """Send events; nothing ends the stream."""
        self._todo += data
        self._more.set()


def counted(rig: Any, kind: Coalesced) -> int:
    found: int = rig.limiter.relay.coalescing.counts[kind]
    return found


# ---- with a key


@pytest.mark.parametrize("key", [KEY, SDK_KEY], ids=["chosen", "made by an SDK"])
async def test_the_second_request_gets_what_was_said_and_follows_on(rig, key: str) -> None:
    rig.engine.script = stream = Stream()
    first = await rig.begin(headers=key)
    await first.reader.readuntil(EVENT)
    second = await rig.begin(headers=key)
    await second.reader.readuntil(EVENT)
    stream.say(EVENT, DONE, b"")
    # the head was read already: what is left is the rest of the frames
    assert (await first.reader.readuntil(LAST)).count(EVENT) == 1
    assert (await second.reader.readuntil(LAST)).count(EVENT) == 1
    await rig.settled()
    assert (len(stream.calls), counted(rig, Coalesced.JOINED)) == (1, 1)
    assert rig.limiter.admission.gate.books.admitted == 1


async def test_a_follower_of_a_request_that_waits_has_no_place_of_its_own(open_rig) -> None:
    async with open_rig(concurrency={"maximum": 1}) as rig:
        held = rig.hold()
        await rig.begin(b'{"n":1}')
        await rig.until(lambda: len(held.calls) == 1)
        first = await rig.queue(headers=KEY)
        second = await rig.begin(headers=KEY)
        await rig.until(lambda: counted(rig, Coalesced.JOINED) == 1)
        assert len(rig.limiter.admission.room) == 1
        first.reset()
        await asyncio.sleep(0.05)
        assert len(rig.limiter.admission.room) == 1
        held.answer(0)
        await rig.until(lambda: len(held.calls) == 2)
        held.answer(1)
        assert (await second.reply()).body == b"ok"
        await rig.settled()


@pytest.mark.parametrize("path", ["/v1/chat/completions", MESSAGES])
async def test_the_same_key_with_another_body_is_422_in_the_shape_of_its_api(rig, path: str) -> None:
    assert (await rig.post(b"{}", path=path, headers=KEY)).status == 200
    reply = await rig.post(b'{"n":1}', path=path, headers=KEY)
    assert (reply.status, reply.header("x-penstock-reason")) == (422, "idempotency_key_conflict")
    shown = json.loads(reply.body)
    assert shown["error"]["type"] == "invalid_request_error"
    assert ("type" in shown) is (path == MESSAGES)
    assert (len(rig.engine.calls), counted(rig, Coalesced.CONFLICT)) == (1, 1)


@pytest.mark.parametrize(
    "headers",
    ["Idempotency-Key: \r\n", f"Idempotency-Key: {'a' * 256}\r\n", KEY + KEY],
    ids=["empty", "too long", "twice"],
)
async def test_what_is_no_key_is_refused(rig, headers: str) -> None:
    reply = await rig.post(headers=headers)
    assert (reply.status, rig.engine.calls) == (400, [])


def form(boundary: str, text: str = "a word") -> bytes:
    part = f'--{boundary}\r\nContent-Disposition: form-data; name="file"\r\n\r\n{text}\r\n'
    return f"{part}--{boundary}--\r\n".encode()


@pytest.mark.parametrize(
    "content_type",
    ["multipart/form-data; boundary={}", 'Multipart/Form-Data; charset=utf-8; Boundary="{}"'],
    ids=["as SDKs write it", "in another spelling"],
)
async def test_a_form_is_the_same_with_another_boundary_and_another_with_other_content(rig, content_type: str) -> None:
    async def send(boundary: str, text: str = "a word"):
        headers = f"{KEY}Content-Type: {content_type.format(boundary)}\r\n"
        return await rig.post(form(boundary, text), path="/v1/audio/transcriptions", headers=headers)

    assert (await send("4f3d")).status == (await send("0c71")).status == 200
    assert (len(rig.engine.calls), counted(rig, Coalesced.REPLAYED)) == (1, 1)
    assert (await send("0c71", "another word")).status == 422


async def test_only_a_form_has_a_boundary(rig) -> None:
    headers = KEY + "Content-Type: application/json; boundary=1\r\n"
    assert (await rig.post(b'{"n":1}', headers=headers)).status == 200
    assert (await rig.post(b'{"n":11}', headers=headers)).status == 422


async def test_an_answer_is_replayed_with_its_status_and_headers(rig) -> None:
    rig.engine.script = lambda call: call.send(JSON % (12, b'{"answer":1}'))
    first = await rig.post(headers=KEY)
    second = await rig.post(headers=KEY + "X-Request-Id: mine\r\n")
    assert (second.status, second.body) == (first.status, first.body) == (200, b'{"answer":1}')
    assert second.header("content-type") == "application/json"
    assert (first.header("x-penstock-coalesced"), second.header("x-penstock-coalesced")) == (None, "replayed")
    assert second.header("x-request-id") == "mine"
    assert (len(rig.engine.calls), counted(rig, Coalesced.REPLAYED)) == (1, 1)


async def test_keys_of_other_paths_and_tenants_are_other_keys(open_rig) -> None:
    tenants = {"identifyBy": "Header", "header": "x-tenant", "trustedProxies": ["127.0.0.1/32"]}
    async with open_rig(tenants=tenants) as rig:
        for path, tenant in [("/v1/completions", "a"), ("/v1/completions", "b"), ("/v1/chat/completions", "a")]:
            assert (await rig.post(path=path, headers=f"{KEY}x-tenant: {tenant}\r\n")).status == 200
        assert len(rig.engine.calls) == 3


async def test_what_is_kept_counts_the_engine_s_headers_and_holds_none_of_the_client_s(rig) -> None:
    async def answer(call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\nX-Long: %b\r\nContent-Length: 2\r\n\r\nok" % (b"v" * 20_000))

    rig.engine.script = answer
    padding = f"X-Padding: {'p' * 30_000}\r\n"
    for _ in range(2):
        reply = await rig.post(headers=KEY + padding)
        assert (reply.status, reply.body, len(reply.header("x-long") or "")) == (200, b"ok", 20_000)
    runs = rig.limiter.relay.coalescing.runs
    assert 20_000 < runs.total_bytes < 25_000
    [entry] = runs._entries.values()
    assert entry.holder.request is None


FAILED = [
    b"HTTP/1.1 500 X\r\nContent-Length: 1\r\n\r\nx",
    b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 400 X\r\nContent-Length: 0\r\n\r\n",
    SSE + chunk(b'data: {"error":{"message":"the engine core died","code":500}}\n\n') + LAST,
    SSE + chunk(b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}\n\n') + LAST,
    SSE + chunk(EVENT)[:-1],
    b"",
]


@pytest.mark.parametrize("answer", FAILED, ids=["500", "503", "400", "error event", "aborted", "cut", "none"])
async def test_a_failed_answer_is_not_kept(rig, answer: bytes) -> None:
    async def fail(call) -> None:
        await call.send(answer)
        call.writer.close()

    rig.engine.script = fail
    client = await rig.begin(headers=KEY + "Connection: close\r\n")
    await client.rest()
    await rig.settled()

    async def well(call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    rig.engine.script = well
    assert (await rig.post(headers=KEY)).body == b"ok"
    assert len(rig.engine.calls) == 2


async def test_every_follower_is_told_of_a_failure_inside_the_stream(rig) -> None:
    async def cut(call) -> None:
        await call.send(SSE + chunk(EVENT))
        await go.wait()
        call.writer.transport.abort()

    go = asyncio.Event()
    rig.engine.script = cut
    clients = [await rig.begin(headers=KEY) for _ in range(2)]
    for client in clients:
        await client.reader.readuntil(EVENT)
    go.set()
    for client in clients:
        rest = await client.rest()
        assert b'"code": "engine_failed"' in rest
        assert rest.endswith(LAST)
    await rig.settled()


async def test_a_long_answer_is_409_while_it_runs_and_forgotten_when_it_is_done(rig) -> None:
    rig.engine.script = stream = Stream()
    big = b"data: " + b"y" * 40_000 + b"\n\n"
    first = await rig.begin(headers=KEY)
    stream.say(*[big] * 8)
    received = 0
    while received < 8 * 40_000:
        received += len(await first.reader.read(1 << 16))
    reply = await rig.post(headers=KEY)
    assert (reply.status, reply.error["code"]) == (409, "idempotency_key_busy")
    assert int(reply.header("retry-after")) >= 1
    stream.say(b"")
    await first.reader.readuntil(LAST)
    await rig.settled()
    assert rig.limiter.relay.coalescing.runs.total_bytes == 0
    rig.engine.script = lambda call: call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert (await rig.post(headers=KEY)).body == b"ok"


async def test_the_first_client_goes_and_the_run_goes_on_for_the_second(rig) -> None:
    rig.engine.script = stream = Stream()
    first = await rig.begin(headers=KEY)
    await first.reader.readuntil(EVENT)
    second = await rig.begin(headers=KEY)
    await second.reader.readuntil(EVENT)
    first.reset()
    await asyncio.sleep(0.05)
    stream.say(EVENT, b"")
    assert EVENT in await second.reader.readuntil(LAST)
    await rig.settled()
    assert (stream.left, rig.limiter.admission.gate.books.cancelled) == (0, 0)


async def test_with_a_made_up_key_the_engine_is_aborted_as_soon_as_the_last_one_leaves(rig) -> None:
    rig.engine.script = stream = Stream()
    clients = [await rig.begin(headers=SDK_KEY) for _ in range(2)]
    for client in clients:
        await client.reader.readuntil(EVENT)
        assert stream.left == 0
        client.reset()
    async with asyncio.timeout(1):
        await rig.until(lambda: stream.left == 1)
    await rig.settled()
    assert rig.limiter.admission.gate.books.cancelled == 1


async def test_the_owner_of_a_chosen_key_can_come_back_to_its_run(rig) -> None:
    rig.engine.script = stream = Stream()
    first = await rig.begin(headers=KEY)
    await first.reader.readuntil(EVENT)
    first.reset()
    await asyncio.sleep(0.1)
    stream.say(EVENT)
    second = await rig.begin(headers=KEY)
    await second.reader.readuntil(EVENT + b"\r\n")
    stream.say(DONE, b"")
    assert DONE in await second.reader.readuntil(LAST)
    await rig.settled()
    assert (len(stream.calls), counted(rig, Coalesced.RECLAIMED)) == (1, 1)


async def test_a_run_that_nobody_comes_back_to_is_given_up(rig, monkeypatch) -> None:
    monkeypatch.setattr(run_module, "RECLAIM_SECONDS", 0.2)
    rig.engine.script = stream = Stream()
    client = await rig.begin(headers=KEY)
    await client.reader.readuntil(EVENT)
    client.reset()
    await rig.until(lambda: stream.left == 1)
    await rig.settled()
    assert counted(rig, Coalesced.ABANDONED) == 1
    assert len(rig.limiter.relay.coalescing.runs) == 0


@pytest.fixture
def held_on_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that could be come back to goes on for longer than any test waits."""
    monkeypatch.setattr(run_module, "RECLAIM_SECONDS", 1000.0)


@pytest.mark.usefixtures("held_on_to")
async def test_a_run_that_was_left_by_a_slow_client_goes_on_and_can_be_had_again(rig) -> None:
    rig.engine.script = stream = Stream()
    client = await rig.begin(headers=KEY)
    await client.reader.readuntil(EVENT)
    (connection,) = [one for one in rig.limiter.relay.connections if one.request]
    connection.request.job.client_paused()
    client.reset()
    await rig.until(lambda: not rig.limiter.relay.connections)
    stream.say(EVENT, DONE, b"")
    await rig.settled()
    assert DONE in (await rig.post(headers=KEY)).body
    assert (len(stream.calls), counted(rig, Coalesced.REPLAYED)) == (1, 1)


@pytest.mark.usefixtures("held_on_to")
async def test_a_run_that_waits_for_its_turn_is_given_up_with_its_last_client(open_rig) -> None:
    async with open_rig(concurrency={"maximum": 1}) as rig:
        held = rig.hold()
        await rig.begin(b'{"n":1}')
        await rig.until(lambda: len(held.calls) == 1)
        (await rig.queue(headers=KEY)).reset()
        await rig.until(lambda: not len(rig.limiter.admission.room))
        held.answer(0)
        await rig.settled()
        assert len(held.calls) == 1


@pytest.mark.usefixtures("held_on_to")
async def test_a_run_that_is_too_long_to_be_told_again_is_given_up_with_its_last_client(rig) -> None:
    rig.engine.script = stream = Stream()
    client = await rig.begin(headers=KEY)
    await client.reader.readuntil(EVENT)
    stream.say(*[b"data: " + b"y" * 60_000 + b"\n\n"] * 6)
    await client.reader.readexactly(6 * 60_000)
    client.reset()
    await rig.until(lambda: stream.left == 1)
    await rig.settled()


async def test_a_run_that_was_left_ends_when_its_answer_cannot_be_told_again(rig) -> None:
    rig.engine.script = stream = Stream()
    client = await rig.begin(headers=KEY)
    await client.reader.readuntil(EVENT)
    client.reset()
    await rig.until(lambda: next(iter(rig.limiter.relay.coalescing.runs._entries.values())).holder.is_alone)
    stream.say(*[b"data: " + b"y" * 60_000 + b"\n\n"] * 6)
    await rig.until(lambda: stream.left == 1)
    await rig.settled()


async def test_a_follower_of_http_1_0_gets_the_payload_and_a_close(rig) -> None:
    rig.engine.script = stream = Stream()
    first = await rig.begin(headers=KEY)
    await first.reader.readuntil(EVENT)
    second = await rig.connect()
    await second.send(rig.post_bytes(headers=KEY).replace(b"HTTP/1.1", b"HTTP/1.0"))
    await second.reader.readuntil(EVENT)
    stream.say(EVENT, b"")
    assert await second.rest() == EVENT
    await first.reader.readuntil(LAST)


async def test_connections_stay_open_and_serve_the_next_request(rig) -> None:
    client = await rig.connect()
    for _ in range(3):
        await client.send(rig.post_bytes(headers=KEY))
        assert (await client.reply()).body == b"ok"
    await client.send(rig.post_bytes(headers=KEY) + rig.post_bytes(headers=KEY))
    assert (await client.reply()).body == (await client.reply()).body == b"ok"
    assert len(rig.engine.calls) == 1


async def test_head_never_reaches_a_run(rig) -> None:
    await rig.post(headers=KEY)
    client = await rig.connect()
    await client.send(f"HEAD /v1/chat/completions HTTP/1.1\r\nHost: x\r\n{KEY}\r\n".encode())
    assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 405 ")


async def test_the_usage_event_is_removed_for_every_follower(open_rig) -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n'
    async with open_rig(rateLimits=[TOKENS_A_MINUTE]) as rig:
        rig.engine.script = stream = Stream()
        body = b'{"stream":true}'
        clients = [await rig.begin(body, headers=KEY) for _ in range(2)]
        for client in clients:
            await client.reader.readuntil(EVENT)
        stream.say(usage, DONE, b"")
        for client in clients:
            rest = await client.reader.readuntil(LAST)
            assert DONE in rest
            assert b"usage" not in rest
        again = await rig.post(body, headers=KEY)
        assert again.body == EVENT + DONE
        assert b"include_usage" in stream.calls[0].body


async def test_whoever_follows_is_charged_nothing(open_rig) -> None:
    async with open_rig(rateLimits=[ONE_REQUEST]) as rig:
        held = rig.hold()
        first = await rig.begin(headers=KEY)
        await rig.until(lambda: len(held.calls) == 1)
        second = await rig.begin(headers=KEY)
        await rig.until(lambda: counted(rig, Coalesced.JOINED) == 1)
        held.answer(0)
        assert (await first.reply()).status == (await second.reply()).status == 200
        assert (await rig.post(headers=KEY)).status == 200
        assert (await rig.post()).status == 429


async def test_a_slow_follower_slows_nobody_and_is_cut_off_with_an_error(rig) -> None:
    rig.engine.script = stream = Stream()
    big = b"data: " + b"y" * 60_000 + b"\n\n"
    quick = await rig.begin(headers=KEY)
    await quick.reader.readuntil(EVENT)
    slow = await rig.connect(limit=1 << 12)
    await slow.send(rig.post_bytes(headers=KEY))
    await slow.reader.readuntil(EVENT)
    received = 0
    rounds = 0
    while not counted(rig, Coalesced.FELL_BEHIND):
        rounds += 1
        assert rounds < 2000
        stream.say(big)
        while received < rounds * len(big):
            received += len(await quick.reader.read(1 << 16))
        runs = [job.run for one in rig.limiter.relay.connections if one.request and (job := one.request.job)]
        assert all(run.recording.size <= 400_000 for run in runs)
    assert b'"code": "fell_behind"' in await slow.rest()
    stream.say(b"")
    await quick.reader.readuntil(LAST)
    await rig.settled()
    assert len(stream.calls) == 1


async def test_a_single_slow_client_pauses_the_engine_and_is_never_cut_off(rig) -> None:
    size = 200 * 60_000

    async def stream(call) -> None:
        await call.send(SSE)
        for _ in range(200):
            await call.send(chunk(b"y" * 60_000))
        await call.send(LAST)

    rig.engine.script = stream
    client = await rig.connect(limit=1 << 12)
    await client.send(rig.post_bytes(headers=KEY))
    await client.reader.readuntil(b"\r\n\r\n")
    await asyncio.sleep(0.2)
    run = next(one.request.job.run for one in rig.limiter.relay.connections if one.request)
    assert run.recording.size <= 400_000
    received = b""
    while not received.endswith(LAST):
        received += await client.reader.read(1 << 16)
    assert received.count(b"y") == size
    await rig.settled()


@pytest.mark.usefixtures("held_on_to")
async def test_a_drain_waits_for_a_run_and_refuses_who_comes_later(rig) -> None:
    rig.engine.script = stream = Stream()
    first = await rig.begin(headers=KEY)
    await first.reader.readuntil(EVENT)
    drain = asyncio.create_task(rig.drain())
    await rig.until(lambda: rig.limiter.drainer.state.phase is Phase.DRAINING)
    assert (await rig.post(headers=KEY)).error["code"] == "draining"
    first.reset()  # nobody can come back to it now
    await rig.until(lambda: stream.left == 1)
    assert (await drain).status == 200


async def test_what_is_cut_is_told_to_every_follower_and_leaks_nothing(rig) -> None:
    rig.engine.script = Stream()
    clients = [await rig.begin(headers=KEY) for _ in range(3)]
    for client in clients:
        await client.reader.readuntil(EVENT)
    rig.limiter.terminate()
    for client in clients:
        assert b'"code": "draining"' in await client.rest()
    await rig.settled()


# ---- modes


async def test_in_shadow_mode_it_is_counted_and_not_done(open_rig) -> None:
    async with open_rig(mode="Shadow") as rig:
        held = rig.hold()
        clients = [await rig.begin(body, headers=KEY) for body in (b"{}", b"{}", b'{"n":1}')]
        clients.append(await rig.begin(headers=RETRY))
        await rig.until(lambda: len(held.calls) == 4)
        for number, client in enumerate(clients):
            held.answer(number)
            assert (await client.reply()).status == 200
        assert (counted(rig, Coalesced.JOINED), counted(rig, Coalesced.CONFLICT)) == (1, 1)


async def test_disabled_nothing_is_looked_at(open_rig) -> None:
    async with open_rig(mode="Disabled") as rig:
        for body in (b"{}", b"{}", b'{"n":1}'):
            assert (await rig.post(body, headers=KEY)).status == 200
        assert len(rig.engine.calls) == 3
        assert not any(rig.limiter.relay.coalescing.counts.values())


async def test_a_policy_that_ends_coalescing_leaves_what_runs_alone(rig) -> None:
    rig.engine.script = stream = Stream()
    clients = [await rig.begin(headers=KEY) for _ in range(2)]
    for client in clients:
        await client.reader.readuntil(EVENT)
    rig.set_policy(admission={"mode": "Disabled"})
    stream.say(DONE, b"")
    for client in clients:
        assert DONE in await client.reader.readuntil(LAST)
    await rig.settled()


# ---- without a key


async def test_equal_requests_that_do_not_say_so_are_not_one(rig) -> None:
    held = rig.hold()
    clients = [await rig.begin() for _ in range(3)]
    await rig.until(lambda: len(held.calls) == 3)
    for number, client in enumerate(clients):
        held.answer(number)
        assert (await client.reply()).status == 200


async def test_a_retry_takes_the_place_of_the_request_that_it_repeats(open_rig) -> None:
    async with open_rig(concurrency={"maximum": 1}) as rig:
        held = rig.hold()
        brief = "x-stainless-read-timeout: 0.2\r\n"
        first = await rig.begin(headers=brief)
        await rig.until(lambda: len(held.calls) == 1)
        await asyncio.sleep(0.25)  # it has waited as long as it said it would
        second = await rig.begin(headers=RETRY + brief)
        await rig.until(lambda: counted(rig, Coalesced.RETRY_JOINED) == 1)
        await asyncio.sleep(0.25)
        third = await rig.begin(headers="x-stainless-retry-count: 2\r\n" + brief)
        await rig.until(lambda: counted(rig, Coalesced.RETRY_JOINED) == 2)
        first.reset()
        second.reset()
        await asyncio.sleep(0.05)
        held.answer(0)
        assert (await third.reply()).body == b"ok"
        await rig.settled()
        assert len(held.calls) == 1


async def test_a_retry_of_somebody_else_is_a_request_of_its_own(rig) -> None:
    held = rig.hold()
    first = await rig.begin(headers="x-stainless-retry-count: 0\r\nx-stainless-read-timeout: 600\r\n")
    await rig.until(lambda: len(held.calls) == 1)
    second = await rig.begin(headers=RETRY)
    await rig.until(lambda: len(held.calls) == 2)
    for number, client in enumerate((first, second)):
        held.answer(number)
        assert (await client.reply()).body == b"ok"


async def test_an_orphan_is_gone_before_its_retry_goes_in(open_rig) -> None:
    async with open_rig(concurrency={"maximum": 1}) as rig:
        rig.engine.script = stream = Stream()
        first = await rig.begin()
        await first.reader.readuntil(EVENT)
        first.writer.write_eof()  # it may still be reading, as far as anybody can see
        await asyncio.sleep(0.2)
        assert rig.limiter.admission.gate.in_flight == 1
        second = await rig.begin(headers=RETRY)
        await second.reader.readuntil(EVENT)
        assert (len(stream.calls), counted(rig, Coalesced.ORPHAN_CANCELLED)) == (2, 1)
        await rig.until(lambda: stream.left == 1)
        stream.say(b"")
        await second.reader.readuntil(LAST)
        await rig.settled()


async def test_a_retry_of_a_stream_that_is_being_read_is_a_request_of_its_own(rig) -> None:
    rig.engine.script = stream = Stream()
    first = await rig.begin()
    await first.reader.readuntil(EVENT)
    second = await rig.begin(headers=RETRY)
    await second.reader.readuntil(EVENT)
    assert (len(stream.calls), stream.left) == (2, 0)


# ---- the real client


async def test_a_real_client_that_times_out_and_asks_again_costs_one_run(rig) -> None:
    """As in ogx-client-python#279: a slow answer, a read timeout, the same request again."""
    answer = json.dumps(
        {
            "id": "1", "object": "chat.completion", "created": 1, "model": "demo",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Well."}, "finish_reason": "stop"}],
        }
    ).encode()  # fmt: skip

    async def slow(call) -> None:
        gone = asyncio.ensure_future(call.client_left())
        await asyncio.wait([gone], timeout=1.2)
        if gone.done():
            left.append(call)
            return
        gone.cancel()
        await call.send(JSON % (len(answer), answer))
        call.writer.close()

    left: list[object] = []
    rig.engine.script = slow
    base = f"http://127.0.0.1:{rig.settings.api_port}/v1"
    async with openai.AsyncOpenAI(base_url=base, api_key="x", timeout=0.4, max_retries=4) as client:
        reply = await client.chat.completions.create(
            model="demo",
            messages=[{"role": "user", "content": "Tell me."}],
            extra_headers={"Idempotency-Key": "order-17"},
        )
    assert reply.choices[0].message.content == "Well."
    assert (len(rig.engine.calls), left) == (1, [])
    assert counted(rig, Coalesced.RECLAIMED) + counted(rig, Coalesced.REPLAYED) >= 1
    await rig.settled()


async def test_without_a_key_a_real_client_never_has_two_runs_at_a_time(rig) -> None:
    running = most = 0

    async def slow(call) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.wait([asyncio.ensure_future(call.client_left())], timeout=5)
        running -= 1

    rig.engine.script = slow
    base = f"http://127.0.0.1:{rig.settings.api_port}/v1"
    async with openai.AsyncOpenAI(base_url=base, api_key="x", timeout=0.3, max_retries=2) as client:
        with pytest.raises(openai.APITimeoutError):
            await client.chat.completions.create(model="demo", messages=[{"role": "user", "content": "Tell me."}])
    await rig.until(lambda: running == 0)
    assert (len(rig.engine.calls), most) == (3, 1)
    await rig.settled()


# ---- what an engine says inside of its answer


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (b'{"message":"the queue is full","code":503}', "dropped"),
        (b'{"message":"EngineCore died","code":500}', "dropped"),
        (b'{"message":"no such thing","type":"invalid_request_error","code":400}', "ignore"),
    ],
    ids=["busy", "dead", "wrong"],
)
async def test_an_error_inside_a_stream_is_no_success(rig, error: bytes, outcome: str) -> None:
    rig.engine.script = lambda call: call.send(SSE + chunk(b'data: {"error":%b}\n\n' % error) + LAST)
    assert (await rig.post(b'{"stream":true}')).status == 200
    await rig.settled()
    finished = rig.limiter.admission.gate.books.finished
    assert {name: count for name, count in finished.items() if count} == {outcome: 1}


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("headers", ["", KEY], ids=["without a key", "with a key"])
async def test_a_stream_with_a_length_loses_its_usage_event_too(open_rig, version: str, headers: str) -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n'
    body = EVENT + usage + DONE
    async with open_rig(rateLimits=[TOKENS_A_MINUTE]) as rig:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body)
        rig.engine.script = lambda call: call.send(head + body)
        client = await rig.connect()
        raw = rig.post_bytes(b'{"stream":true}', headers=headers)
        await client.send(raw.replace(b"HTTP/1.1", b"HTTP/%b" % version.encode()))
        reply = await client.reply()
        assert reply.header("content-length") is None
        assert reply.body == EVENT + DONE
        await rig.settled()


# ---- aborts


async def test_runs_that_end_in_every_way_leave_no_drift(rig, monkeypatch) -> None:
    monkeypatch.setattr(run_module, "RECLAIM_SECONDS", 0.02)
    dice = random.Random(1)

    async def engine(call) -> None:
        how = dice.random()
        if how < 0.1:
            call.writer.transport.abort()
            return
        await call.send(SSE)
        for _ in range(dice.randrange(4)):
            await call.send(chunk(EVENT))
            await asyncio.sleep(dice.random() * 0.01)
        if how < 0.2:
            call.writer.transport.abort()
        else:
            await call.send(LAST)

    async def one(number: int) -> None:
        key = dice.choice(
            ["", f"Idempotency-Key: {number // 4}\r\n", f"Idempotency-Key: stainless-x-retry-{number}\r\n"]
        )
        retry = dice.choice(["", RETRY])
        body = dice.choice([b"{}", b"{}", b'{"n":1}'])
        client = await rig.begin(body, headers=key + retry + "Connection: close\r\n")
        if dice.random() < 0.5:
            await asyncio.sleep(dice.random() * 0.03)
            client.reset() if dice.random() < 0.5 else client.close()
        else:
            await client.rest()
            client.abort()

    rig.engine.script = engine
    for begin in range(0, ROUNDS, 25):
        await asyncio.gather(*(one(number) for number in range(begin, min(begin + 25, ROUNDS))))
    await rig.until(lambda: not rig.limiter.relay.exchanges)
    await rig.settled()
    relay, books = rig.limiter.relay, rig.limiter.admission.gate.books
    assert books.admitted == sum(books.finished.values()) + books.cancelled
    assert sum(relay.ends[key] for key in relay.ends if key[1] in set(End)) == books.admitted
    assert counted(rig, Coalesced.JOINED) > 0
    await rig.until(lambda: len(relay.connections) <= 1)
