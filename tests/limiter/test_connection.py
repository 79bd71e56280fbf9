"""Bad input and odd clients on real sockets: the right status or a close, never a trace of them afterwards."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket

import pytest

from penstock.limiter.refusal import Reason
from penstock.limiter.service import Times

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
MEBIBYTE = 1024 * 1024

BAD_INPUT = {
    "no HTTP at all": (b"hello, are you there?\r\n", 400),
    "a TLS hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), 400),
    "zero bytes": (bytes(2000), 400),
    "a 1 MB header": (HEAD + b"X: " + b"a" * MEBIBYTE, 431),
    "1 MB of headers": (HEAD + b"X: aaaaaaaa\r\n" * (MEBIBYTE // 13), 431),
    "an endless request line": (b"GET /" + b"a" * MEBIBYTE, 431),
    "bare line feeds": (b"GET / HTTP/1.1\nHost: x\n\n", 400),
    "two lengths": (HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400),
    "length and chunks": (HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "a bad chunk size": (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    "a chunk longer than it says": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}}\r\n0\r\n\r\n", 400),
    "an overlong chunk size": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 400, 400),
    "a folded header": (HEAD + b"X: a\r\n b\r\n\r\n", 400),
    "no host": (b"GET /v1/models HTTP/1.1\r\n\r\n", 400),
    "an unknown method": (b"BREW /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", 501),
    "HTTP/2 without asking": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "an unknown path": (b"GET /etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 404),
    "the engine's metrics": (b"GET /v1/..%2f/metrics HTTP/1.1\r\nHost: x\r\n\r\n", 404),
    "the wrong method": (b"GET /v1/chat/completions HTTP/1.1\r\nHost: x\r\n\r\n", 405),
    "a body that is too large by its length": (HEAD + b"Content-Length: 1048577\r\n\r\n" + b"a" * 500, 413),
    "an unknown expectation": (HEAD + b"Expect: more\r\n\r\n", 417),
}


@pytest.mark.parametrize(("raw", "status"), BAD_INPUT.values(), ids=BAD_INPUT.keys())
async def test_bad_input_gets_its_status_and_never_reaches_the_engine(rig, caplog, raw: bytes, status: int) -> None:
    reply = await rig.ask(raw)
    assert reply.status == status
    assert reply.error["message"]
    assert rig.engine.calls == []
    await rig.settled()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info] == []


async def test_a_chunked_body_that_grows_too_large_is_refused_while_it_comes(rig) -> None:
    client = await rig.connect()
    await client.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")

    async def upload() -> None:
        for _ in range(40):
            await client.send(b"10000\r\n" + bytes(65536) + b"\r\n")

    uploading = asyncio.create_task(upload())
    reply = await client.reply()
    assert reply.status == 413
    await uploading
    await rig.settled()


async def test_a_client_that_uploads_on_can_read_its_refusal_without_a_reset(rig) -> None:
    client = await rig.connect()
    await client.send(HEAD + b"Content-Length: 30000000\r\n\r\n")
    for _ in range(100):
        await client.send(bytes(100_000))
    reply = await client.reply()
    assert (reply.status, reply.header("connection")) == (413, "close")
    assert await client.rest() == b""


@pytest.mark.parametrize("sent", [HEAD, HEAD + b"Content-Length: 10\r\n\r\nabc", b"GE"], ids=["head", "body", "method"])
async def test_a_request_cut_short_is_refused_and_the_connection_ends(rig, sent: bytes) -> None:
    client = await rig.connect()
    await client.send(sent)
    client.writer.write_eof()
    reply = await client.reply()
    assert reply.status == 400
    assert await client.rest() == b""
    assert rig.engine.calls == []


LONG_IDLE = Times(idle_seconds=600.0, head_seconds=0.3, body_step_seconds=0.3, linger_silence_seconds=0.3)


@pytest.mark.parametrize(
    "parts",
    [(HEAD,), (HEAD + b"Content-Length: 10\r\n\r\nabc",), (HEAD + b"Content-Length: 10\r\n\r\n",), (HEAD, b"X: y\r\n")],
    ids=["head", "body that began with its head", "body that never began", "head in parts"],
)
@pytest.mark.parametrize("before", [b"", b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"], ids=["new", "used"])
async def test_a_request_that_does_not_come_in_time_is_refused_however_long_a_connection_may_be_idle(
    settings, make_rig, before: bytes, parts: tuple[bytes, ...]
) -> None:
    async with make_rig(settings, times=LONG_IDLE) as rig:
        client = await rig.connect()
        if before:
            await client.send(before)
            assert (await client.reply()).status == 404
        for part in parts:
            await client.send(part)
            await asyncio.sleep(0.05)
        reply = await client.reply()
        assert reply.status == 408
        assert await client.rest() == b""
        await rig.settled()


async def test_a_head_that_drips_in_is_refused_however_steadily_it_drips(rig) -> None:
    client = await rig.connect()
    dripping = asyncio.create_task(client.reply())
    drips = itertools.chain(HEAD, itertools.repeat(ord("a")))
    while not dripping.done():
        await client.send(bytes((next(drips),)))
        await asyncio.sleep(0.02)
    assert (await dripping).status == 408


@pytest.mark.parametrize("before", [b"", b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"], ids=["new", "used"])
async def test_empty_lines_keep_no_connection_open(rig, before: bytes) -> None:
    client = await rig.connect()
    if before:
        await client.send(before)
        assert (await client.reply()).status == 404
    dripping = asyncio.create_task(client.reply())
    while not dripping.done():
        await client.send(b"\r\n")
        await asyncio.sleep(0.02)
    assert (await dripping).status == 400
    assert await client.rest() == b""


async def test_a_connection_on_which_nothing_comes_is_closed_without_a_word(impatient_rig) -> None:
    client = await impatient_rig.connect()
    assert await client.rest() == b""


async def test_a_client_that_asks_and_never_reads_fills_no_memory(rig) -> None:
    client = await rig.connect(limit=1000)
    asking = asyncio.create_task(client.send(b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n" * 400_000))
    await rig.until(lambda: bool(rig.limiter.relay.connections))
    (connection,) = rig.limiter.relay.connections
    await rig.until(lambda: connection.transport.get_write_buffer_size() > 0)
    before = -1
    while (count := sum(rig.limiter.relay.refusals.values())) != before:
        before = count
        await asyncio.sleep(0.3)
    assert 0 < connection.transport.get_write_buffer_size() <= 256 * 1024
    assert not asking.done()
    assert (await client.reply()).status == 404
    client.abort()
    await asking
    await rig.until(lambda: not rig.limiter.relay.connections)


async def test_a_stream_that_begins_while_answers_wait_fills_no_memory(rig) -> None:
    """The write that ends one answer may fill the buffer: the next request has to wait until it is read."""
    sent = 0

    async def script(call) -> None:
        nonlocal sent
        if call.body == b'{"size": 1}':
            await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n" + bytes(60_000))
            return
        await call.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await call.send(b"2710\r\n" + bytes(10_000) + b"\r\n")
            sent += 10_000

    rig.engine.script = script
    client = await rig.connect(limit=1000)
    await client.send(rig.post_bytes(b'{"size": 1}') * 120 + rig.post_bytes())
    held: list[int] = []
    for _ in range(20):
        await asyncio.sleep(0.05)
        held += [connection.transport.get_write_buffer_size() for connection in rig.limiter.relay.connections]
    assert 0 < max(held) <= 256 * 1024
    client.abort()
    await rig.settled()


async def test_a_client_that_stopped_reading_during_its_upload_gets_nothing_until_it_reads(rig) -> None:
    client = await rig.connect()
    await client.send(HEAD + b"Content-Length: 2\r\n\r\n{")
    await rig.until(lambda: rig.limiter.relay.budget.held_bytes > 0)
    (connection,) = rig.limiter.relay.connections
    connection.pause_writing()
    await client.send(b"}")
    await rig.until(lambda: len(rig.engine.calls) == 1)
    await asyncio.sleep(0.1)
    assert len(rig.limiter.relay.exchanges) == 1
    connection.resume_writing()
    assert (await client.reply()).body == b"ok"


async def test_a_refused_client_that_goes_on_sending_for_ever_is_given_up(impatient_rig) -> None:
    client = await impatient_rig.connect()
    await client.send(b"hello\r\n")
    assert (await client.reply()).status == 400
    async with asyncio.timeout(5):
        while impatient_rig.limiter.relay.connections:
            await client.send(b"x")
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("half_closed", [False, True], ids=["open", "half closed"])
@pytest.mark.parametrize("size", [40_000, 400_000], ids=["below the high water mark", "above it"])
@pytest.mark.parametrize("end", ["complete", "broken", "refused"])
async def test_a_client_that_does_not_read_is_given_up(impatient_rig, half_closed: bool, size: int, end: str) -> None:
    """However its request ended, and even when only little waits for it."""
    rig = impatient_rig

    async def script(call) -> None:
        length = size if end == "complete" else size + 1
        await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + bytes(size))
        if end == "broken":
            call.writer.transport.abort()
        await call.client_left()

    rig.engine.script = script
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", rig.settings.api_port))
        await rig.until(lambda: bool(rig.limiter.relay.connections))
        (connection,) = rig.limiter.relay.connections
        connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        refused = b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n" * (size // 300)
        await loop.sock_sendall(sock, refused if end == "refused" else rig.post_bytes())
        await rig.until(lambda: connection.transport.get_write_buffer_size() > 0)
        if half_closed:
            sock.shutdown(socket.SHUT_WR)
        await rig.until(lambda: not rig.limiter.relay.connections)
    await rig.settled()


async def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_nothing_behind(rig) -> None:
    client = await rig.connect()
    await client.send(HEAD + b"Content-Length: 100000\r\n\r\n" + bytes(5000))
    await rig.until(lambda: rig.limiter.relay.budget.held_bytes > 0)
    client.abort()
    await rig.settled()
    assert rig.engine.calls == []


async def test_pipelined_requests_are_answered_in_order(rig) -> None:
    async def echo(call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(call.body), call.body))

    rig.engine.script = echo
    client = await rig.connect()
    await client.send(
        rig.post_bytes(b'{"n": 1}') + b"\r\n" + rig.post_bytes(path="/nowhere") + rig.post_bytes(b'{"n": 3}')
    )
    assert (await client.reply()).body == b'{"n": 1}'
    assert (await client.reply()).status == 404


async def test_many_pipelined_requests_do_not_nest(rig) -> None:
    client = await rig.connect()
    await client.send(b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n" * 1500)
    for _ in range(1500):
        assert (await client.reply()).status == 404


async def test_more_than_fits_the_pipeline_ends_the_connection_after_the_answer(rig) -> None:
    gate = asyncio.Event()

    async def wait(call) -> None:
        await gate.wait()
        await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    rig.engine.script = wait
    client = await rig.connect()
    await client.send(rig.post_bytes())
    await rig.until(lambda: len(rig.engine.calls) == 1)
    await client.send(rig.post_bytes() * 3000)
    await asyncio.sleep(0.1)
    gate.set()
    assert (await client.reply()).body == b"ok"
    assert await client.rest() == b""
    assert len(rig.engine.calls) == 1


async def test_expect_continue_is_answered_before_the_body(rig) -> None:
    client = await rig.connect()
    await client.send(HEAD + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert (await client.reply()).status == 100
    await client.send(b"{}")
    assert (await client.reply()).status == 200
    assert rig.engine.calls[0].header("expect") is None


async def test_a_refused_expectation_gets_no_continue(rig) -> None:
    reply = await rig.ask(HEAD.replace(b"chat", b"cat") + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert reply.status == 404


async def test_an_offered_upgrade_is_ignored(rig) -> None:
    reply = await rig.post(headers="Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n")
    assert reply.status == 200
    assert rig.engine.calls[0].header("upgrade") is None
    assert rig.engine.calls[0].header("http2-settings") is None


async def test_http_1_0_is_answered_and_the_connection_ends(rig) -> None:
    client = await rig.connect()
    await client.send(b"GET /v1/models HTTP/1.0\r\n\r\n")
    reply = await client.reply()
    assert (reply.status, reply.body, reply.header("connection")) == (200, b"ok", "close")
    assert await client.rest() == b""


async def test_http_1_0_gets_a_stream_without_chunks(rig) -> None:
    async def stream(call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1")
        await asyncio.sleep(0.02)
        await call.send(b"\r\nc\r\n0\r\n\r\n")

    rig.engine.script = stream
    raw = b"POST /v1/completions HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}"
    client = await rig.connect()
    await client.send(raw)
    head, _, body = (await client.rest()).partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body == b"abc"


async def test_bodies_together_cannot_pass_their_budget(rig) -> None:
    rig.limiter.relay.budget.limit_bytes = 1000
    reply = await rig.post(bytes(2000))
    assert (reply.status, reply.error["code"]) == (503, "overloaded")
    assert reply.header("retry-after") in {"1", "2"}
    await rig.settled()
    assert (await rig.post(b"{}")).status == 200


async def test_anthropic_clients_get_anthropic_errors(rig) -> None:
    reply = await rig.ask(b"GET /v1/messages HTTP/1.1\r\nHost: x\r\n\r\n")
    assert reply.status == 405
    assert reply.body.startswith(b'{"type": "error", "error": {"type": "invalid_request_error"')


async def test_head_is_answered_without_a_body(rig) -> None:
    client = await rig.connect()
    await client.send(b"HEAD /nowhere HTTP/1.1\r\nHost: x\r\n\r\nGET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n")
    head = await client.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404")
    assert (await client.reply()).status == 404


async def test_a_body_that_drips_in_is_refused_however_steadily_it_drips(rig) -> None:
    client = await rig.connect()
    await client.send(HEAD + b"Content-Length: 100000\r\n\r\n")
    dripping = asyncio.create_task(client.reply())
    while not dripping.done():
        await client.send(b" ")
        await asyncio.sleep(0.02)
    assert (await dripping).status == 408
    await rig.settled()


async def test_a_large_body_that_stopped_coming_makes_room_for_others(rig, monkeypatch) -> None:
    monkeypatch.setattr("penstock.limiter.bodybudget.SLOW_SECONDS", 0.05)
    rig.limiter.relay.budget.limit_bytes = 250_000
    slow = await rig.connect()
    await slow.send(HEAD + b"Content-Length: 210000\r\n\r\n" + bytes(200_000))
    await rig.until(lambda: rig.limiter.relay.budget.held_bytes > 200_000)
    await asyncio.sleep(0.1)
    assert (await rig.post(b'{"prompt": "%b"}' % (b"x" * 100_000))).status == 200
    reply = await slow.reply()
    assert (reply.status, reply.error["code"]) == (503, "overloaded")
    await rig.settled()


async def test_a_body_that_began_with_its_head_and_stopped_coming_makes_room_for_others(
    settings, make_rig, monkeypatch
) -> None:
    monkeypatch.setattr("penstock.limiter.bodybudget.SLOW_SECONDS", 0.05)
    async with make_rig(settings, times=Times()) as rig:
        budget = rig.limiter.relay.budget
        budget.limit_bytes = 40_000
        slow = await rig.connect()
        await slow.send(HEAD + b"Content-Length: 50000\r\n\r\n" + bytes(30_000))
        await rig.until(lambda: budget.held_bytes > 30_000)
        await asyncio.sleep(0.1)
        assert (await rig.post(b'{"prompt": "%b"}' % (b"x" * 20_000))).status == 200
        reply = await slow.reply()
        assert (reply.status, reply.error["code"]) == (503, "overloaded")
        await rig.settled()


async def test_a_body_that_was_refused_is_not_asked_for_room_any_more(settings, make_rig, monkeypatch) -> None:
    """Though its client stays for a while: it would be refused for a second time, behind its last answer."""
    monkeypatch.setattr("penstock.limiter.bodybudget.SLOW_SECONDS", 0.05)
    async with make_rig(settings, times=Times(linger_silence_seconds=30.0)) as rig:
        refused = await rig.connect()
        await refused.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}")
        await rig.until(lambda: rig.limiter.relay.budget.held_bytes > 0)
        (connection,) = rig.limiter.relay.connections
        await refused.send(b"no chunk")
        assert (await refused.reply()).status == 400
        await asyncio.sleep(0.1)
        rig.limiter.relay.budget.limit_bytes = 1000
        assert (await rig.post(bytes(2000))).status == 503
        assert connection in rig.limiter.relay.connections
        refusals = {reason: count for reason, count in rig.limiter.relay.refusals.items() if count}
        assert refusals == {Reason.BAD_REQUEST: 1, Reason.OVERLOADED: 1}


async def test_bad_input_of_a_client_that_is_gone_already_is_looked_at_no_more(rig, monkeypatch) -> None:
    """Otherwise it would be refused again and again, for ever, as nothing takes the refusal."""
    await rig.connect()
    await rig.until(lambda: bool(rig.limiter.relay.connections))
    (connection,) = rig.limiter.relay.connections
    refused: list[object] = []

    def count(refusal: object) -> None:
        refused.append(refusal)
        assert len(refused) < 10

    monkeypatch.setattr(rig.limiter.relay, "count_refusal", count)
    connection.transport.abort()
    connection.data_received(b"no request\r\n\r\n")
    assert refused == []
