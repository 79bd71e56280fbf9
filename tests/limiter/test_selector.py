"""Lanes on real sockets: streams pass without being touched, and whatever is out of the ordinary leaves the lane."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.limiter.framing import ChunkScanner, FramingError
from penstock.limiter.head import parse_response
from penstock.limiter.loop import running_loop
from penstock.limiter.passage import Passage, Traffic
from penstock.limiter.refusal import Dialect, Reason, Refused
from penstock.limiter.transport import Transport
from penstock.limiter.usage import UsageWatch
from penstock.limiter.wish import Kind

PATIENCE_SECONDS = 10.0
EVENT = b'data: {"a": 1}\n\n'
END = b"0\r\n\r\n"
HEAD = parse_response(
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n", method=b"POST"
)
BOUND_BYTES = 256 * 1024


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


CHUNK = chunk(EVENT)


class Side(asyncio.Protocol):
    """One of the limiter's two connections."""

    other: Transport

    def __init__(self) -> None:
        self.told: list[object] = []

    def eof_received(self) -> bool:
        self.told.append("eof")
        return False

    def pause_writing(self) -> None:
        self.told.append("pause")
        self.other.pause_reading()

    def resume_writing(self) -> None:
        self.told.append("resume")
        self.other.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.told.append(error if error is None else type(error))


class Street:
    """A stream from an engine to a client, with the sockets of both."""

    def __init__(self, watch: UsageWatch | None = None, first: bytes = CHUNK) -> None:
        self.ends: list[object] = []
        self.traffic = Traffic()
        self.engine_side, self.client_side = Side(), Side()
        self.engine, self.source = self._connect(self.engine_side)
        self.client, self.sink = self._connect(self.client_side)
        self.engine_side.other, self.client_side.other = self.sink, self.source
        self.passage = Passage(
            HEAD,
            owner=self,
            sink=self.sink,
            selector=running_loop().direct,
            traffic=self.traffic,
            unchunk=False,
            watch=watch,
        )
        self.passage.begin(b"", first)
        self.passage.read_from(self.source)

    @staticmethod
    def _connect(protocol: asyncio.Protocol) -> tuple[socket.socket, Transport]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            theirs = socket.create_connection(listener.getsockname())
            ours, _ = listener.accept()
        for sock in (theirs, ours):
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        return theirs, Transport(running_loop(), ours, protocol)

    def completed(self, *, surplus: bool) -> None:
        self.ends.append("surplus" if surplus else "completed")
        self.passage.close()

    def broke_off(self, error: FramingError) -> None:
        self.ends.append(type(error))
        self.passage.close()

    async def read(self, size: int) -> bytes:
        loop, data = asyncio.get_running_loop(), bytearray()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(data) < size:
                piece = await loop.sock_recv(self.client, size - len(data))
                assert piece, "the stream ended"
                data += piece
        return bytes(data)


class Alley(Street):
    """The same on sockets without windows and timers: what is taken at one end makes room at the other at once."""

    @staticmethod
    def _connect(protocol: asyncio.Protocol) -> tuple[socket.socket, Transport]:
        theirs, ours = socket.socketpair()
        for sock in (theirs, ours):
            sock.setblocking(False)
        return theirs, Transport(running_loop(), ours, protocol)


@asynccontextmanager
async def opened(watch: UsageWatch | None = None, first: bytes = CHUNK) -> AsyncIterator[Street]:
    ChunkScanner().feed(TOKEN + b"".join(other for other, _ in OTHERS.values()))  # these sizes are known from now on
    street = Street(watch, first)
    assert await street.read(len(first)) == first
    yield street
    street.source.abort()
    street.sink.abort()
    await asyncio.sleep(0.01)
    street.engine.close()
    street.client.close()


@pytest.fixture
async def street() -> AsyncIterator[Street]:
    """A stream that has just brought its first event."""
    async with opened() as street:
        yield street


async def until(condition) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - plain state without an event
            await asyncio.sleep(0.005)


async def test_known_chunks_of_whole_events_are_not_scanned(street: Street, monkeypatch) -> None:
    monkeypatch.setattr(ChunkScanner, "feed", None)
    before = running_loop().direct.lane_bytes
    for _ in range(3):
        street.engine.send(CHUNK)
        assert await street.read(len(CHUNK)) == CHUNK
    assert running_loop().direct.lane_bytes - before == 3 * len(CHUNK)
    assert street.traffic.bytes_sent == len(CHUNK)


async def test_other_chunks_take_the_long_way_and_the_lane_stays_open(street: Street, monkeypatch) -> None:
    other = chunk(EVENT * 3) + chunk(EVENT)
    street.engine.send(other)
    assert await street.read(len(other)) == other
    monkeypatch.setattr(ChunkScanner, "feed", None)
    street.engine.send(CHUNK)
    assert await street.read(len(CHUNK)) == CHUNK


async def test_the_end_of_a_body_is_seen_and_closes_the_lane(street: Street) -> None:
    street.engine.send(CHUNK)
    assert await street.read(len(CHUNK)) == CHUNK
    street.engine.send(END)
    assert await street.read(len(END)) == END
    assert street.ends == ["completed"]
    seen: list[bytes] = []
    street.source.receive = seen.append
    street.engine.send(CHUNK)
    await until(lambda: seen == [CHUNK])


@pytest.mark.parametrize(
    "read",
    [CHUNK[:-1] + b"x", CHUNK + b"zz\r\n", CHUNK[:-4] + b"ab\n\n\r\n"],
    ids=["no line end", "bad size behind", "longer than its size"],
)
async def test_a_known_size_does_not_excuse_broken_framing(street: Street, read: bytes) -> None:
    street.engine.send(read)
    await until(lambda: street.ends == [FramingError])


async def test_a_known_chunk_inside_another_one_is_no_chunk(street: Street) -> None:
    outer = chunk(CHUNK * 2 + b"tail")
    for piece in (outer[:4], CHUNK, CHUNK, b"tail\r\n", CHUNK, END):
        street.engine.send(piece)
        assert await street.read(len(piece)) == piece
    assert street.ends == ["completed"]


async def test_a_client_that_reads_slowly_gets_everything_in_order_and_holds_little(street: Street) -> None:
    """The lane closes while bytes wait and opens again; what is put in between keeps its place."""
    loop, count = asyncio.get_running_loop(), 20_000
    numbered = [chunk(b"data: %08d\n\n" % number) for number in range(count)]

    async def produce() -> None:
        for number in range(0, count, 50):
            await loop.sock_sendall(street.engine, b"".join(numbered[number : number + 50]))
            await asyncio.sleep(0)

    producing = asyncio.create_task(produce())
    await until(lambda: "pause" in street.client_side.told)
    await asyncio.sleep(0.05)
    assert 0 < street.sink.get_write_buffer_size() <= BOUND_BYTES
    assert not producing.done()
    same = await street.read(sum(map(len, numbered))) == b"".join(numbered)
    assert same
    await producing
    before = running_loop().direct.lane_bytes
    street.engine.send(CHUNK)
    assert await street.read(len(CHUNK)) == CHUNK
    assert running_loop().direct.lane_bytes > before


async def test_what_somebody_else_writes_keeps_its_place(street: Street) -> None:
    """A filler that has to wait goes out before the chunks that come after it."""
    large = bytes(500_000)
    street.client_side.other = street.sink  # this client does not slow its engine down
    street.sink.write(large)
    assert street.sink.get_write_buffer_size() > 0
    street.engine.send(CHUNK)
    await asyncio.sleep(0.05)
    same = await street.read(len(large) + len(CHUNK)) == large + CHUNK
    assert same


async def test_a_chunk_never_overtakes_bytes_that_wait() -> None:
    """Also when there is room for it: its event comes first, and the client has just taken what was in the way."""
    street = Alley()
    assert await street.read(len(CHUNK)) == CHUNK
    large = bytes(500_000)
    street.client_side.other = street.sink  # this client does not slow its engine down
    street.sink.write(large)
    await asyncio.sleep(0.01)  # the kernel's list of events is empty now
    street.engine.send(CHUNK)
    taken = bytearray()
    while piece := available(street.client):
        taken += piece
    assert street.sink.get_write_buffer_size() > 0
    same = bytes(taken) + await street.read(len(large) + len(CHUNK) - len(taken)) == large + CHUNK
    assert same
    for one in (street.source, street.sink):
        one.abort()
    await asyncio.sleep(0.01)
    for sock in (street.engine, street.client):
        sock.close()


async def test_a_chunk_that_ends_within_an_event_is_remembered(street: Street) -> None:
    """The lane passes whole events only, so what is put after them is no continuation of one that broke off."""
    half = chunk(b'data: {"a"')
    for piece in (half, CHUNK):
        street.engine.send(piece)
        assert await street.read(len(piece)) == piece
    farewell = street.passage.farewell(Refused(Reason.ENGINE_FAILED, "It has left."), Dialect.OPENAI)
    assert farewell.partition(b"\r\n")[2].startswith(b"data: ")


def available(sock: socket.socket) -> bytes:
    """Return what can be read now, without a turn of the loop."""
    try:
        return sock.recv(65_536)
    except BlockingIOError:
        return b""


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_client_that_leaves_ends_its_own_connection_only(street: Street, how: str) -> None:
    if how == "reset":
        street.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    street.client.close()
    street.engine.send(CHUNK)
    await until(street.sink.is_closing)
    street.engine.send(CHUNK)
    await asyncio.sleep(0.02)
    assert [told for told in street.client_side.told if told != "eof"] in ([None], [ConnectionResetError])
    assert street.engine_side.told == []


@pytest.mark.parametrize(("how", "told"), [("close", ["eof", None]), ("reset", [ConnectionResetError])])
async def test_an_engine_that_leaves_is_noticed_on_the_lane(street: Street, how: str, told: list[object]) -> None:
    street.engine.send(CHUNK)
    assert await street.read(len(CHUNK)) == CHUNK
    if how == "reset":
        street.engine.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    street.engine.close()
    await until(lambda: street.engine_side.told == told)


@pytest.mark.parametrize("end", ["close", "abort", "write_eof"])
async def test_nothing_is_written_to_a_client_whose_connection_was_ended(street: Street, end: str) -> None:
    """Not even by events of the same batch."""
    getattr(street.sink, end)()
    before = running_loop().direct.lane_bytes
    street.engine.send(CHUNK)
    if end == "write_eof":
        reports: list[object] = []
        running_loop().set_exception_handler(lambda _, context: reports.append(context["exception"]))
        await until(lambda: bool(reports))
    else:
        await asyncio.sleep(0.05)
    assert running_loop().direct.lane_bytes == before
    assert await asyncio.get_running_loop().sock_recv(street.client, 100) == b""


async def test_a_paused_stream_stays_on_its_lane(street: Street) -> None:
    street.source.pause_reading()
    street.engine.send(CHUNK)
    await asyncio.sleep(0.05)
    before = running_loop().direct.lane_bytes
    street.source.resume_reading()
    assert await street.read(len(CHUNK)) == CHUNK
    assert running_loop().direct.lane_bytes > before


# ---- with a mark


def marked(text: str, finish: str = "null") -> bytes:
    return b'data: {"choices":[{"delta":{"content":"%b"},"finish_reason":%b}]}\n\n' % (text.encode(), finish.encode())


TOKEN = chunk(marked("ab"))
ROLE = chunk(marked(""))
OTHERS = {
    "the end": (chunk(marked("", '"stop"')), 0),
    "two events": (chunk(marked("a") + marked("b")), 2),
    "the mark in a text": (chunk(marked('\\"finish_reason\\":null', '"stop"')), 1),
    "two chunks": (TOKEN + TOKEN, 2),
    "usage": (chunk(b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'), 0),
}


@pytest.fixture
async def counted() -> AsyncIterator[tuple[Street, UsageWatch]]:
    """A stream of a chat that has brought its first event."""
    watch = UsageWatch(Kind.CHAT, stream=True)
    async with opened(watch, ROLE) as street:
        yield street, watch


async def pass_through(street: Street, data: bytes) -> int:
    """Return how many bytes passed on the lane."""
    before = running_loop().direct.lane_bytes
    street.engine.send(data)
    assert await street.read(len(data)) == data
    return running_loop().direct.lane_bytes - before


@pytest.mark.parametrize(("other", "count"), OTHERS.values(), ids=OTHERS.keys())
async def test_what_is_not_one_marked_event_leaves_the_lane_and_is_counted_exactly(counted, other, count: int) -> None:
    street, watch = counted
    assert [await pass_through(street, TOKEN) for _ in range(3)] == [len(TOKEN)] * 3
    assert await pass_through(street, other) == 0
    assert await pass_through(street, TOKEN) == len(TOKEN)
    street.passage.close()
    assert watch.chunks == 4 + count


async def test_the_first_event_is_never_on_the_lane() -> None:
    """In a chat it has the mark and no token."""
    watch = UsageWatch(Kind.CHAT, stream=True)
    async with opened(watch, chunk(b": ping\n\n")) as street:
        assert await pass_through(street, TOKEN) == 0
        assert await pass_through(street, TOKEN) == len(TOKEN)
        street.passage.close()
        assert watch.chunks == 2


@pytest.mark.parametrize("how", ["the client leaves", "the engine leaves", "bytes wait"])
async def test_no_count_is_lost_however_the_lane_ends(counted, how: str) -> None:
    street, watch = counted
    for _ in range(5):
        await pass_through(street, TOKEN)
    assert watch.chunks == 0
    if how == "the client leaves":
        street.sink.abort()
    elif how == "the engine leaves":
        street.source.abort()
        await until(lambda: bool(street.engine_side.told))
    else:
        street.client_side.other = street.sink
        street.sink.write(bytes(500_000))
    street.passage.close()
    assert watch.chunks == 5


async def test_a_stream_that_may_lose_an_event_is_on_the_lane_between_its_tokens() -> None:
    watch = UsageWatch(Kind.CHAT, stream=True, remove_usage=True)
    async with opened(watch, ROLE) as street:
        assert await pass_through(street, TOKEN) == len(TOKEN)
        street.engine.send(OTHERS["usage"][0])
        await until(lambda: watch.removed == 1)
        assert await pass_through(street, END) == 0
        assert street.ends == ["completed"]
        assert (watch.output_tokens, watch.chunks) == (2, 1)
