"""What passes through the API port, and what happens when one side fails or leaves."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from penstock.api.engine import EngineType
from penstock.engines.facts import RequestClass
from penstock.limiter.ends import End
from penstock.limiter.relay import EARLY_BODY_BYTES

PATIENCE_SECONDS = 10.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n"
SSE = CHUNKED % b"text/event-stream; charset=utf-8"
EVENT = b"data: {}\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def test_a_request_reaches_the_engine_and_its_answer_the_client(rig) -> None:
    reply = await rig.post(b'{"a": 1}', headers="Authorization: Bearer secret\r\nX-Request-Id: mine\r\n")
    assert (reply.status, reply.body, reply.header("x-request-id")) == (200, b"ok", "mine")
    call = rig.engine.calls[0]
    assert (call.body, call.header("authorization")) == (b'{"a": 1}', None)
    assert call.header("x-request-id") not in {None, "mine"}
    await rig.settled()


async def test_a_chunked_upload_reaches_the_engine_with_a_length(rig) -> None:
    client = await rig.connect()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    for byte in head + b'3\r\n{"a\r\n6;x=y\r\n": "b"\r\n1\r\n}\r\n0\r\nT: a\r\n\r\n':
        await client.send(bytes((byte,)))
    assert (await client.reply()).status == 200
    assert rig.engine.calls[0].body == b'{"a": "b"}'
    assert rig.engine.calls[0].header("transfer-encoding") is None


async def test_the_engine_gets_the_checked_path(rig) -> None:
    await rig.ask(b"GET /x/..//v1/%6dodels?a=b HTTP/1.1\r\nHost: x\r\n\r\n")
    assert rig.engine.calls[0].head.startswith(b"GET /v1/models?a=b HTTP/1.1\r\n")


async def test_reads_need_no_permit(rig) -> None:
    assert (await rig.ask(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")).status == 200
    assert rig.limiter.admission.gate.books.admitted == 0


@pytest.mark.parametrize("body", [chunk(b"hi"), b""], ids=["streaming", "before the first byte"])
@pytest.mark.parametrize("how", ["reset", "close"])
async def test_the_engine_sees_at_once_that_the_client_has_left(rig, body: bytes, how: str) -> None:
    left = asyncio.Event()

    async def stream(call) -> None:
        if body:
            await call.send(SSE + body)
        await call.client_left()
        left.set()

    rig.engine.script = stream
    client = await rig.connect()
    await client.send(rig.post_bytes())
    await rig.until(lambda: len(rig.engine.calls) == 1)
    if body:
        await client.reader.readuntil(b"hi\r\n")
    client.abort() if how == "reset" else client.close()
    async with asyncio.timeout(2):
        await left.wait()
    await rig.settled()
    assert rig.limiter.admission.gate.books.cancelled == 1


@pytest.mark.parametrize("early", [True, False], ids=["before the answer", "during the answer"])
async def test_a_client_that_only_stopped_sending_gets_its_whole_answer(rig, early: bool) -> None:
    go = asyncio.Event()

    async def stream(call) -> None:
        if early:
            await go.wait()
        await call.send(SSE + chunk(EVENT))
        await go.wait()
        await call.send(chunk(EVENT) + b"0\r\n\r\n")

    rig.engine.script = stream
    client = await rig.connect()
    await client.send(rig.post_bytes())
    await rig.until(lambda: len(rig.engine.calls) == 1)
    if not early:
        await client.reader.readuntil(b"\r\n\r\n")
        assert await client.reader.readuntil(EVENT + b"\r\n") == chunk(EVENT)
    client.writer.write_eof()
    await asyncio.sleep(0.2)
    go.set()
    if early:
        assert (await client.reply()).status == 100
        assert (await client.reply()).body == EVENT * 2
    else:
        assert await client.rest() == b"0" + chunk(EVENT) + b"0\r\n\r\n"
    await rig.settled()
    assert rig.limiter.admission.gate.books.cancelled == 0


async def test_an_engine_that_is_not_there_is_503_and_not_ready_at_once(rig) -> None:
    await rig.engine.stop()
    reply = await rig.post()
    assert (reply.status, reply.error["code"]) == (503, "engine_unavailable")
    assert reply.header("x-penstock-reason") == "engine_unavailable"
    assert reply.header("retry-after") in {"1", "2"}
    assert rig.limiter.not_ready() == ["the engine is not healthy"]
    await rig.settled()


async def test_an_engine_that_closes_without_an_answer_is_502(rig) -> None:
    async def close(call) -> None:
        call.writer.transport.abort()

    rig.engine.script = close
    reply = await rig.post()
    assert (reply.status, reply.error["code"]) == (502, "engine_failed")
    assert len(rig.engine.calls) == 1
    await rig.settled()


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-nothing\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000,
    ],
    ids=["no HTTP", "two lengths", "upgrade", "huge head"],
)
async def test_an_answer_that_is_no_http_is_502(rig, answer: bytes) -> None:
    rig.engine.script = lambda call: call.send(answer)
    assert (await rig.post()).status == 502
    await rig.settled()


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, "success"), (400, "ignore"), (500, "ignore"), (429, "dropped"), (503, "dropped"), (504, "dropped")],
)
async def test_the_status_tells_whether_the_engine_shed_the_request(rig, status: int, outcome: str) -> None:
    rig.engine.script = lambda call: call.send(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status)
    assert (await rig.post()).status == status
    await rig.settled()
    assert {name: count for name, count in rig.limiter.admission.gate.books.finished.items() if count} == {outcome: 1}


async def test_a_post_is_never_sent_twice(rig) -> None:
    await rig.post()

    async def close(call) -> None:
        call.writer.transport.abort()

    rig.engine.script = close
    assert (await rig.post()).status == 502
    assert len(rig.engine.calls) == 2


async def test_a_read_on_a_reused_connection_is_sent_again_once(rig) -> None:
    await rig.post()

    async def close(call) -> None:
        call.writer.transport.abort()

    rig.engine.script = close
    assert (await rig.ask(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")).status == 502
    assert len(rig.engine.calls) == 3


async def test_a_pooled_connection_that_the_engine_closed_is_not_used(rig) -> None:
    async def answer_and_close(call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        call.writer.close()

    rig.engine.script = answer_and_close
    for _ in range(30):
        assert (await rig.post()).status == 200


async def test_connections_to_the_engine_are_reused(rig) -> None:
    for _ in range(5):
        await rig.post()
    assert len({call.writer for call in rig.engine.calls}) == 1


async def test_a_connection_is_given_up_before_the_engine_would(rig) -> None:
    for _ in range(95):
        await rig.post()
    assert len({call.writer for call in rig.engine.calls}) == 2


BREAKS = {
    "a stream between chunks ends with an error event": (
        SSE + chunk(EVENT), rb"data: \{\}\n\n\r\n[0-9a-f]+\r\ndata: (\{.*\})\n\n\r\n0\r\n\r\n"),
    "an event cut in two is ended first": (
        SSE + chunk(b"data: {"), rb"data: \{\r\n[0-9a-f]+\r\n\n\ndata: (\{.*\})\n\n\r\n0\r\n\r\n"),
    "an open stream too": (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99\r\n\r\n" + EVENT, rb"data: {}\n\n"),
    "a chunk cut in two shows": (SSE + b"a\r\ndata:", rb"data:"),
    "chunks that are no events show": (CHUNKED % b"application/json" + chunk(b"{"), rb"1\r\n{\r\n"),
    "a body shorter than its length shows": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", rb"{"),
    "bad chunks from the engine": (SSE + chunk(EVENT) + b"zz\r\n", rb""),
}  # fmt: skip


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-"], ids=["nothing", "half a head"])
async def test_a_read_that_the_engine_does_not_answer_in_time_is_504_and_ends_at_the_engine(rig, sent: bytes) -> None:
    left = asyncio.Event()

    async def hang(call) -> None:
        await call.send(sent)
        await call.client_left()
        left.set()

    rig.limiter.relay.read_seconds = 0.1
    rig.engine.script = hang
    client = await rig.connect()
    await client.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
    reply = await client.reply()
    assert (reply.status, reply.error["code"]) == (504, "engine_timeout")
    assert reply.header("x-penstock-reason") == "engine_timeout"
    async with asyncio.timeout(PATIENCE_SECONDS):
        await left.wait()
    rig.engine.script = lambda call: call.send(OK)
    await client.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await client.reply()).body == b"ok"
    await rig.settled()
    assert rig.limiter.relay.ends[RequestClass.READ, End.ENGINE_TIMEOUT] == 1


async def test_a_read_that_breaks_off_in_its_body_never_looks_complete(rig) -> None:
    async def hang(call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab")
        await call.client_left()

    rig.limiter.relay.read_seconds = 0.1
    rig.engine.script = hang
    client = await rig.connect()
    await client.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await client.rest()).endswith(b"\r\n\r\nab")
    await rig.settled()


async def test_generation_may_take_longer_than_a_read(rig) -> None:
    async def think(call) -> None:
        await asyncio.sleep(0.2)
        await call.send(OK)

    rig.limiter.relay.read_seconds = 0.05
    rig.engine.script = think
    assert (await rig.post()).status == 200


@pytest.mark.parametrize(("sent", "seen"), BREAKS.values(), ids=BREAKS.keys())
async def test_an_answer_that_breaks_off_never_looks_complete(rig, sent: bytes, seen: bytes) -> None:
    async def break_off(call) -> None:
        await call.send(sent)
        await asyncio.sleep(0.05)
        call.writer.transport.abort()

    rig.engine.script = break_off
    client = await rig.connect()
    await client.send(rig.post_bytes())
    await client.reader.readuntil(b"\r\n\r\n")
    match = re.search(rb"(?:\A|\n)" + seen + rb"\Z", await client.rest())
    assert match
    if match.groups():
        assert json.loads(match[1])["error"]["code"] == "engine_failed"
    await rig.settled()


async def test_a_body_without_length_ends_with_its_connection(rig) -> None:
    async def answer(call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        call.writer.close()

    rig.engine.script = answer
    client = await rig.connect()
    await client.send(rig.post_bytes())
    reply = await client.reply()
    assert (reply.body, reply.header("connection")) == (b"all of it", "close")
    await rig.settled()


async def test_a_body_without_length_that_breaks_off_is_a_reset(rig) -> None:
    async def answer(call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await asyncio.sleep(0.05)
        sock = call.writer.get_extra_info("socket")
        sock.setsockopt(1, 13, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # SO_LINGER 0: end with a reset
        call.writer.transport.abort()

    rig.engine.script = answer
    client = await rig.connect()
    await client.send(rig.post_bytes())
    with pytest.raises(ConnectionResetError):
        await client.rest()


async def test_an_early_answer_to_a_large_body_arrives(rig) -> None:
    async def early(call) -> None:
        await call.send(b"HTTP/1.1 400 Bad\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")

    rig.engine.script = early
    reply = await rig.post(b'{"prompt": "%b"}' % (b"x" * 1_000_000))
    assert (reply.status, reply.body) == (400, b"no")
    await rig.settled()


@pytest.mark.parametrize(
    ("size", "connection"),
    [(2, "keep-alive"), (EARLY_BODY_BYTES, "keep-alive"), (EARLY_BODY_BYTES + 1, "close")],
    ids=["small", "as large as is read anyway", "larger"],
)
async def test_only_a_large_body_is_refused_before_it_is_read_and_costs_the_connection(
    open_rig, size: int, connection: str
) -> None:
    quota = {"name": "one", "per": "Address", "unit": "Requests", "limit": 1, "windowSeconds": 86_400}
    async with open_rig(rateLimits=[quota]) as rig:
        client = await rig.connect()
        await client.send(rig.post_bytes())
        assert (await client.reply()).status == 200
        head, _, body = rig.post_bytes(b"{}".ljust(size)).partition(b"\r\n\r\n")
        await client.send(head + b"\r\n\r\n")
        await asyncio.sleep(0.05)
        if connection == "keep-alive":
            await client.send(body)
        refused = await client.reply()
        assert (refused.status, refused.header("connection") or "keep-alive") == (429, connection)
        if connection == "close":
            assert await client.rest() == b""
        else:
            await client.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await client.reply()).status == 200


async def test_interim_answers_of_the_engine_are_skipped(rig) -> None:
    rig.engine.script = lambda call: call.send(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1"
    )
    assert (await rig.post()).body == b"1"


async def test_bytes_behind_an_answer_never_reach_another_client(rig) -> None:
    rig.engine.script = lambda call: call.send(
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 EVIL\r\n\r\n"
    )
    for _ in range(3):
        reply = await rig.post()
        assert (reply.body, reply.head[:15]) == (b"ok", b"HTTP/1.1 200 OK")
    assert len({call.writer for call in rig.engine.calls}) == 3


async def test_a_slow_reader_slows_the_engine_and_fills_no_memory(rig) -> None:
    sent = 0

    async def flood(call) -> None:
        nonlocal sent
        await call.send(CHUNKED % b"text/plain")
        while True:
            await call.send(chunk(bytes(10_000)))
            sent += 10_000

    rig.engine.script = flood
    client = await rig.connect(limit=1000)
    await client.send(rig.post_bytes())
    before = -1
    while sent != before:
        before = sent
        await asyncio.sleep(0.3)
    held = [connection.transport.get_write_buffer_size() for connection in rig.limiter.relay.connections]
    assert 0 < max(held) <= 256 * 1024
    for _ in range(200):
        assert len(await client.reader.readexactly(50_000)) == 50_000
    assert sent > before
    client.abort()
    await rig.settled()


@pytest.mark.parametrize(("engine", "reused"), [(EngineType.VLLM, True), (EngineType.LLAMA_CPP, False)])
async def test_a_connection_that_the_engine_closes_after_a_stream_is_not_used_again(open_rig, engine, reused) -> None:
    """llama.cpp promises to keep it and closes it: a request sent into that moment would be lost."""

    async def stream(call) -> None:
        await call.send(SSE + chunk(EVENT) + b"0\r\n\r\n")

    async with open_rig(settings_of={"engine_type": engine, "max_concurrency": 1}) as rig:
        rig.engine.script = stream
        for _ in range(2):
            assert (await rig.post()).status == 200
        assert (rig.engine.calls[0].writer is rig.engine.calls[1].writer) is reused
