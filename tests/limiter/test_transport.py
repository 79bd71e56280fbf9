"""Transports on real sockets: asyncio's contract, and no event that repeats without end."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
import zlib
from collections.abc import AsyncIterator

import pytest

from penstock.limiter.loop import running_loop
from penstock.limiter.selector import READABLE
from penstock.limiter.transport import Transport
from penstock.limiter.unsent import PIECES_LIMIT

PATIENCE_SECONDS = 10.0
QUIET_SECONDS = 0.3
QUIET_CPU_SECONDS = 0.15
LARGE = os.urandom(3_000_000)


def digest(data: bytes) -> str:
    """Short, because no difference of megabytes is worth printing."""
    return f"{len(data)} bytes, {zlib.crc32(data)}"


class Recorder(asyncio.Protocol):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.data = b""
        self.told: list[object] = []
        self.keep_open = False
        self.lost = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.told.append("eof")
        return self.keep_open

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.told.append(error if error is None else type(error))
        self.lost.set()


class Rope:
    """A transport and the socket at its other end."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.peer = socket.create_connection(listener.getsockname())
            ours, _ = listener.accept()
        self.peer.setblocking(False)
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        self.number = ours.fileno()
        self.transport = Transport(running_loop(), ours, protocol)

    async def all(self) -> bytes:
        """Everything the peer can read until the end."""
        loop, data = asyncio.get_running_loop(), bytearray()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while piece := await loop.sock_recv(self.peer, 100_000):
                data += piece
        return bytes(data)

    def reset(self) -> None:
        """End the peer's side with a reset."""
        self.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.peer.close()


@pytest.fixture
async def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def rope(recorder: Recorder) -> AsyncIterator[Rope]:
    rope = Rope(recorder)
    yield rope
    rope.peer.close()


@pytest.fixture(autouse=True)
async def closed_in_the_end(rope: Rope, recorder: Recorder):
    """Whatever a test does, the end is told exactly once and the descriptor is closed."""
    yield
    rope.transport.abort()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await recorder.lost.wait()
    await asyncio.sleep(0)
    assert sum(told is None or isinstance(told, type) for told in recorder.told) == 1
    assert rope.transport.get_extra_info("socket").fileno() == -1


async def until(condition) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - plain state without an event
            await asyncio.sleep(0.005)


async def assert_quiet() -> None:
    """Nothing turns in the event loop."""
    before = time.process_time()
    await asyncio.sleep(QUIET_SECONDS)
    assert time.process_time() - before < QUIET_CPU_SECONDS


# ---- writing


@pytest.mark.parametrize("how", ["write", "writelines", "many writes"])
async def test_what_a_slow_peer_cannot_take_at_once_arrives_whole_and_in_order(rope, recorder, how: str) -> None:
    pieces = [LARGE[start : start + 9_000] for start in range(0, len(LARGE), 9_000)]
    assert len(pieces) > PIECES_LIMIT
    if how == "write":
        rope.transport.write(LARGE)
    elif how == "writelines":
        rope.transport.writelines(pieces)
    else:
        for piece in pieces:
            rope.transport.write(piece)
    assert rope.transport.get_write_buffer_size() > 1_000_000
    assert recorder.told == ["pause"]
    rope.transport.close()
    rope.transport.write(b"nobody gets this")
    assert digest(await rope.all()) == digest(LARGE)
    await recorder.lost.wait()
    assert (recorder.told[0], recorder.told[-1]) == ("pause", None)


async def test_writing_pauses_above_the_high_water_mark_and_resumes_at_the_low_one(rope, recorder) -> None:
    rope.transport.set_write_buffer_limits(high=100_000, low=50_000)
    while not recorder.told:
        assert rope.transport.get_write_buffer_size() <= 100_000
        rope.transport.write(bytes(10_000))
    assert rope.transport.get_write_buffer_limits() == (50_000, 100_000)
    loop = asyncio.get_running_loop()
    while recorder.told == ["pause"]:
        assert rope.transport.get_write_buffer_size() > 50_000
        await loop.sock_recv(rope.peer, 10_000)
        await asyncio.sleep(0.001)
    assert recorder.told == ["pause", "resume"]


async def test_an_end_of_writing_comes_after_what_was_written_and_reading_goes_on(rope, recorder) -> None:
    rope.transport.write(LARGE)
    rope.transport.write_eof()
    rope.transport.write_eof()
    with pytest.raises(RuntimeError):
        rope.transport.write(b"more")
    assert digest(await rope.all()) == digest(LARGE)
    rope.peer.send(b"still here")
    await until(lambda: recorder.data == b"still here")


async def test_an_end_of_writing_with_nothing_to_send_is_seen_at_once(rope) -> None:
    rope.transport.write_eof()
    with pytest.raises(RuntimeError):
        rope.transport.writelines([b"more"])
    assert await rope.all() == b""


async def test_a_peer_that_resets_ends_a_write(rope, recorder) -> None:
    rope.transport.pause_reading()
    rope.reset()
    await until(lambda: rope.transport.write(b"x") or rope.transport.is_closing())
    await recorder.lost.wait()
    assert recorder.told[-1] in {ConnectionResetError, BrokenPipeError}


async def test_a_peer_that_resets_while_bytes_wait_ends_the_connection(rope, recorder) -> None:
    rope.transport.pause_reading()
    rope.transport.write(LARGE)
    rope.reset()
    await until(recorder.lost.is_set)
    assert recorder.told[-1] in {ConnectionResetError, BrokenPipeError}
    assert rope.transport.get_write_buffer_size() == 0


# ---- reading


async def test_a_paused_transport_reads_nothing_until_it_is_resumed(rope, recorder) -> None:
    rope.transport.pause_reading()
    rope.transport.pause_reading()
    rope.peer.send(b"hello")
    await assert_quiet()
    assert (recorder.data, rope.transport.is_reading()) == (b"", False)
    rope.transport.resume_reading()
    await until(lambda: recorder.data == b"hello")
    assert rope.transport.is_reading()


async def test_an_end_that_comes_while_paused_is_told_when_reading_resumes(rope, recorder) -> None:
    rope.transport.pause_reading()
    rope.peer.send(b"last words")
    rope.peer.shutdown(socket.SHUT_WR)
    await assert_quiet()
    assert recorder.told == []
    rope.transport.resume_reading()
    await recorder.lost.wait()
    assert (recorder.data, recorder.told) == (b"last words", ["eof", None])


async def test_a_reset_that_comes_while_paused_costs_nothing_and_is_told_when_reading_resumes(rope, recorder) -> None:
    rope.transport.pause_reading()
    rope.reset()
    await assert_quiet()
    assert recorder.told == []
    rope.transport.resume_reading()
    await recorder.lost.wait()
    assert recorder.told == [ConnectionResetError]


async def test_a_half_closed_connection_can_be_written_to_and_costs_nothing(rope, recorder) -> None:
    recorder.keep_open = True
    rope.peer.shutdown(socket.SHUT_WR)
    await until(lambda: recorder.told == ["eof"])
    await assert_quiet()
    rope.transport.resume_reading()
    await assert_quiet()
    assert recorder.told == ["eof"]
    rope.transport.write(LARGE)
    rope.transport.close()
    assert digest(await rope.all()) == digest(LARGE)


async def test_a_connection_that_is_not_kept_open_sends_what_waits_and_ends(rope, recorder) -> None:
    rope.transport.write(LARGE)
    rope.peer.shutdown(socket.SHUT_WR)
    assert digest(await rope.all()) == digest(LARGE)
    await recorder.lost.wait()
    assert [told for told in recorder.told if told not in {"pause", "resume"}] == ["eof", None]


async def test_reads_go_to_whoever_receives_at_the_time(rope, recorder) -> None:
    seen: list[bytes] = []
    rope.transport.receive = seen.append
    rope.peer.send(b"one")
    await until(lambda: seen == [b"one"])
    other = Recorder()
    rope.transport.set_protocol(other)
    assert rope.transport.get_protocol() is other
    rope.peer.send(b"two")
    await until(lambda: other.data == b"two")
    rope.transport.set_protocol(recorder)
    assert recorder.data == b""


# ---- the end


async def test_the_end_is_told_in_a_later_turn_and_once(rope, recorder) -> None:
    rope.transport.abort()
    rope.transport.close()
    rope.transport.abort()
    rope.transport.resume_reading()
    rope.transport.write(b"nobody gets this")
    assert (recorder.told, rope.transport.is_closing(), rope.transport.is_reading()) == ([], True, False)
    assert await rope.all() == b""
    assert recorder.told == [None]


async def test_an_abort_inside_a_read_is_the_last_thing_that_happens(rope, recorder) -> None:
    def abort(data: bytes) -> None:
        recorder.data += data
        rope.transport.abort()

    rope.transport.receive = abort
    rope.peer.send(b"a")
    await recorder.lost.wait()
    await asyncio.sleep(0.02)
    assert (recorder.data, recorder.told) == (b"a", [None])


@pytest.mark.parametrize("where", ["data_received", "eof_received", "resume_writing"])
async def test_a_protocol_that_fails_ends_its_own_connection_and_is_reported(rope, recorder, where: str) -> None:
    reports: list[Exception] = []
    running_loop().set_exception_handler(lambda _, context: reports.append(context["exception"]))

    def fail(*_args: object) -> None:
        raise ArithmeticError("a defect")

    setattr(recorder, where, fail)
    rope.transport.set_protocol(recorder)
    if where == "data_received":
        rope.peer.send(b"x")
    elif where == "eof_received":
        rope.peer.shutdown(socket.SHUT_WR)
    else:
        rope.transport.write(LARGE)
        await rope.all()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await recorder.lost.wait()
    assert [type(report) for report in reports] == [ArithmeticError]
    assert recorder.told[-1] is ArithmeticError


async def test_an_abort_while_many_pieces_are_written_drops_the_rest_and_leaves_nothing_watched(
    rope, recorder, monkeypatch
) -> None:
    here, there = socket.socketpair()
    monkeypatch.setattr(recorder, "pause_writing", rope.transport.abort)
    rope.transport.writelines([LARGE, LARGE])
    assert rope.transport.get_write_buffer_size() == 0
    assert await rope.all() == b""
    await recorder.lost.wait()
    await asyncio.sleep(0)
    direct, heard = running_loop().direct, asyncio.Event()
    with here, there, socket.socket(fileno=os.dup2(here.fileno(), rope.number)) as next_owner:
        direct.watch(next_owner.fileno(), READABLE, lambda _events: heard.set())
        there.send(b"to the next owner of the number")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await heard.wait()
        direct.unwatch(next_owner.fileno())


async def test_a_protocol_may_end_a_connection_as_soon_as_it_is_made() -> None:
    class Unwilling(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport.abort()

    protocol = Unwilling()
    rope = Rope(protocol)
    rope.peer.send(b"x")
    async with asyncio.timeout(PATIENCE_SECONDS):
        await protocol.lost.wait()
    assert (protocol.data, protocol.told) == (b"", [None])
    rope.peer.close()


async def test_it_knows_its_addresses_while_the_kernel_does(rope) -> None:
    info = rope.transport.get_extra_info
    assert info("peername") == rope.peer.getsockname()
    assert info("sockname") == rope.peer.getpeername()
    assert info("sslcontext", "none") == "none"
    rope.transport.abort()
    await asyncio.sleep(0.01)
    assert info("peername") is None
