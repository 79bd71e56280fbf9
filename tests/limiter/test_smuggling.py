"""Smuggling on real sockets: whatever is ambiguous ends the connection, and a hidden second request reaches nobody.

`test_head`, `test_framing` and `test_connection` show that each head and body is refused or read in one way. Here every
classical attack carries a request of its own behind it, in the place where a server that reads it differently would see
one, and what counts is what arrives at the engine.
"""

from __future__ import annotations

import asyncio
import gzip

import pytest

POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
HIDDEN = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Hidden: 1\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def sized(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n" % len(body)


REFUSED = {
    # lengths that two servers could read differently
    "CL.TE": (POST + sized(b"0\r\n\r\n" + HIDDEN) + CHUNKED + b"\r\n0\r\n\r\n" + HIDDEN, 400),
    "TE.CL": (POST + CHUNKED + sized(b"2\r\n") + b"\r\n2\r\n{}\r\n0\r\n\r\n" + HIDDEN, 400),
    "TE.TE, the second unknown": (POST + CHUNKED + b"Transfer-Encoding: cow\r\n\r\n0\r\n\r\n" + HIDDEN, 400),
    "TE.TE, the first unknown": (POST + b"Transfer-Encoding: cow\r\n" + CHUNKED + b"\r\n0\r\n\r\n" + HIDDEN, 400),
    "TE in a list": (POST + b"Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n" + HIDDEN, 501),
    "TE in a list, the other way": (POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + HIDDEN, 501),
    "TE with a semicolon": (POST + b"Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n" + HIDDEN, 501),
    "TE in quotes": (POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n' + HIDDEN, 501),
    "TE with a vertical tab": (POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + HIDDEN, 400),
    "TE with a blank before the colon": (POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + HIDDEN, 400),
    "TE with a tab before the colon": (POST + b"Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n" + HIDDEN, 400),
    "TE on a folded line": (POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + HIDDEN, 400),
    "TE behind a bare LF": (POST + b"X: a\n" + CHUNKED + b"\r\n0\r\n\r\n" + HIDDEN, 400),
    "TE behind a bare CR": (POST + b"X: a\r" + CHUNKED + b"\r\n0\r\n\r\n" + HIDDEN, 400),
    "TE with NUL": (POST + b"Transfer-Encoding: chunked\x00\r\n\r\n0\r\n\r\n" + HIDDEN, 400),
    "TE with a soft hyphen": (POST + b"Transfer\xadEncoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN, 400),
    "TE in HTTP/1.0": (POST.replace(b"1.1", b"1.0") + CHUNKED + b"\r\n0\r\n\r\n" + HIDDEN, 400),
    "two different lengths": (POST + b"Content-Length: 0\r\n" + sized(HIDDEN) + b"\r\n" + HIDDEN, 400),
    "two lengths in one line": (POST + b"Content-Length: 0, %d\r\n\r\n" % len(HIDDEN) + HIDDEN, 400),
    "a length with a plus": (POST + b"Content-Length: +0\r\n\r\n" + HIDDEN, 400),
    "a negative length": (POST + b"Content-Length: -%d\r\n\r\n" % len(HIDDEN) + HIDDEN, 400),
    "a length beyond 64 bits": (POST + b"Content-Length: 18446744073709551616\r\n\r\n" + HIDDEN, 400),
    "a length with a blank inside": (POST + b"Content-Length: 0 0\r\n\r\n" + HIDDEN, 400),
    "a length with a letter": (POST + b"Content-Length: 0x\r\n\r\n" + HIDDEN, 400),
    "a length in other digits": (POST + "Content-Length: \u0660\r\n\r\n".encode() + HIDDEN, 400),
    # chunks
    "a chunk size with a sign": (POST + CHUNKED + b"\r\n-1\r\n" + HIDDEN, 400),
    "a chunk size with 0x": (POST + CHUNKED + b"\r\n0x2\r\n{}\r\n0\r\n\r\n" + HIDDEN, 400),
    "a chunk size beyond 32 bits": (POST + CHUNKED + b"\r\n100000000\r\n{}\r\n0\r\n\r\n" + HIDDEN, 400),
    "a chunk size that ends with LF": (POST + CHUNKED + b"\r\n2\n{}\r\n0\r\n\r\n" + HIDDEN, 400),
    "a chunk size that ends with CR": (POST + CHUNKED + b"\r\n2\r{}\r\n0\r\n\r\n" + HIDDEN, 400),
    "a chunk extension with LF": (POST + CHUNKED + b"\r\n2;a\nb\r\n{}\r\n0\r\n\r\n" + HIDDEN, 400),
    "an endless chunk extension": (POST + CHUNKED + b"\r\n2;" + b"a" * 5000 + b"\r\n{}\r\n0\r\n\r\n" + HIDDEN, 400),
    "a chunk without its line end": (POST + CHUNKED + b"\r\n2\r\n{}0\r\n\r\n" + HIDDEN, 400),
    "a chunk that ends with LF": (POST + CHUNKED + b"\r\n2\r\n{}\n0\r\n\r\n" + HIDDEN, 400),
    "a trailer with a folded line": (POST + CHUNKED + b"\r\n2\r\n{}\r\n0\r\nX: a\r\n b\r\n\r\n" + HIDDEN, 400),
    "a trailer without end": (POST + CHUNKED + b"\r\n2\r\n{}\r\n0\r\n" + b"X: a\r\n" * 1000 + HIDDEN, 400),
    # targets and methods
    "an authority as target": (b"GET x:80 HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN, 400),
    "CONNECT": (b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN, 501),
    "TRACE": (b"TRACE /v1/models HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN, 501),
    "a method with NUL": (b"PO\x00T /v1/completions HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN, 400),
    "a target with a line end": (b"GET /v1/models%0d%0a HTTP/1.1 \r\nHost: x\r\n\r\n" + HIDDEN, 400),
    "HTTP/2 with prior knowledge": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9) + HIDDEN, 505),
    "no blank before the version": (b"GET /v1/modelsHTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN, 400),
    "two hosts": (b"GET /v1/models HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n" + HIDDEN, 400),
    "a host with a path": (b"GET /v1/models HTTP/1.1\r\nHost: x/y\r\n\r\n" + HIDDEN, 400),
}


@pytest.mark.parametrize(("raw", "status"), REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("step", [1 << 20, 7], ids=["at once", "in pieces"])
async def test_what_is_ambiguous_ends_the_connection_and_hides_nothing(rig, raw: bytes, status: int, step: int) -> None:
    client = await rig.connect()
    reading = asyncio.create_task(client.reply())
    for begin in range(0, len(raw), step):
        await client.send(raw[begin : begin + step])
        if step < len(raw):
            await asyncio.sleep(0)
    reply = await reading
    assert (reply.status, reply.header("connection")) == (status, "close")
    assert await client.rest() == b""
    assert rig.engine.calls == []
    await rig.settled()


READ_IN_ONE_WAY = {
    "a body that looks like a request": (POST + sized(HIDDEN) + b"\r\n" + HIDDEN, [400]),
    "a chunk that looks like a request": (
        POST + CHUNKED + b"\r\n%x\r\n" % len(HIDDEN) + HIDDEN + b"\r\n0\r\n\r\n",
        [400],
    ),
    "a trailer that looks like framing": (POST + CHUNKED + b"\r\n2\r\n{}\r\n0\r\nContent-Length: 99\r\n\r\n", [200]),
    "GET with a body": (b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + sized(HIDDEN) + b"\r\n" + HIDDEN, [200]),
    "an upgrade to h2c": (
        POST
        + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
        + sized(b"{}")
        + b"\r\n{}",
        [200],
    ),
    "an upgrade to WebSocket": (
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        [200],
    ),
    "an absolute target with another host": (
        b"GET http://other:99/v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
        [200],
    ),
    "doubled and encoded slashes": (b"GET //v1%2fmodels HTTP/1.1\r\nHost: x\r\n\r\n", [200]),
    "a path out of the list": (b"GET /v1/models/..;/../metrics HTTP/1.1\r\nHost: x\r\n\r\n", [404]),
    "an encoded path out of the list": (b"GET /v1/models/%2e%2e/%2e%2e/metrics HTTP/1.1\r\nHost: x\r\n\r\n", [404]),
    "a doubly encoded slash": (b"GET /v1%252fmodels HTTP/1.1\r\nHost: x\r\n\r\n", [404]),
    "a backslash": (b"GET /v1\\models HTTP/1.1\r\nHost: x\r\n\r\n", [404]),
    "an encoded NUL": (b"GET /v1/models%00 HTTP/1.1\r\nHost: x\r\n\r\n", [404]),
    "an answer to HEAD before another request": (
        b"HEAD /nowhere HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
        [404, 200],
    ),
}


@pytest.mark.parametrize(("raw", "statuses"), READ_IN_ONE_WAY.values(), ids=READ_IN_ONE_WAY.keys())
async def test_what_can_only_be_read_in_one_way_hides_nothing(rig, raw: bytes, statuses: list[int]) -> None:
    client = await rig.connect()
    await client.send(raw)
    for number, status in enumerate(statuses):
        if raw.startswith(b"HEAD") and number == 0:
            assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 404")
        else:
            assert (await client.reply()).status == status
    client.writer.write_eof()
    assert await client.rest() == b""
    assert all(call.header("x-hidden") is None for call in rig.engine.calls)
    assert len(rig.engine.calls) == sum(status == 200 for status in statuses)
    for call in rig.engine.calls:
        assert call.head.split(b" ", 2)[1] in {b"/v1/models", b"/v1/chat/completions"}
        assert call.header("host") == f"127.0.0.1:{rig.engine.port}"
        assert call.header("transfer-encoding") is call.header("upgrade") is None
    await rig.settled()


ENGINE_SMUGGLES = {
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
    "length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "an unknown coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a folded line": b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok",
    "a switch of protocols": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
    "bare line feeds": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok\r\n\r\n",
}


@pytest.mark.parametrize("answer", ENGINE_SMUGGLES.values(), ids=ENGINE_SMUGGLES.keys())
async def test_an_ambiguous_answer_of_the_engine_is_a_failure_of_the_engine(rig, answer: bytes) -> None:
    async def script(call) -> None:
        await call.send(answer)
        await call.client_left()

    rig.engine.script = script
    reply = await rig.post()
    assert (reply.status, reply.error["code"]) == (502, "engine_failed")
    await rig.settled()


async def test_an_answer_that_nobody_asked_for_is_given_to_nobody(rig) -> None:
    """The engine's connection carries a second answer; the next client must not get it."""

    async def script(call) -> None:
        await call.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
        )

    rig.engine.script = script
    for _ in range(3):
        assert (await rig.post()).body == b"ok"


async def test_a_compressed_bomb_passes_as_the_bytes_it_is(rig) -> None:
    bomb = gzip.compress(bytes(20_000_000), mtime=0)

    async def script(call) -> None:
        head = (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
        )
        await call.send(head % len(bomb) + bomb)

    rig.engine.script = script
    assert (await rig.post(headers="Accept-Encoding: gzip\r\n")).body == bomb


async def test_a_compressed_request_is_not_expanded(rig) -> None:
    bomb = gzip.compress(b'{"prompt": "' + bytes(20_000_000) + b'"}', mtime=0)
    reply = await rig.post(bomb, headers="Content-Encoding: gzip\r\nContent-Type: application/json\r\n")
    assert reply.status == 400
    assert rig.engine.calls == []
