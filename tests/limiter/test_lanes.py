"""Lanes by themselves: what they pass on, what they hand back, and that the two kinds of them agree."""

from __future__ import annotations

import errno
import functools
import logging
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.limiter import nativelanes
from penstock.limiter.framing import WHOLE_CHUNKS, ChunkScanner, FramingError
from penstock.limiter.lanes import (
    EVENT,
    NOT_READ,
    NOT_WHOLE,
    NOT_WRITTEN,
    OVER,
    PARTLY_WRITTEN,
    READABLE,
    WRITABLE,
    Lanes,
    PythonLanes,
)
from penstock.limiter.nativelanes import MARK_LIMIT_BYTES, NativeError, NativeLanes, lanes_on

KINDS = {"native": NativeLanes, "python": PythonLanes}
EVENT_BYTES = b"data: 1\n\n"
MARK = b'"x":null'


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


CHUNK = chunk(EVENT_BYTES)


class Bench:
    """Lanes with one pair of sockets at each end of a lane."""

    def __init__(self, kind: type[Lanes]) -> None:
        self.epoll = select.epoll()
        self.lanes = kind(self.epoll)
        self.engine, self.source = self._pair()
        self.client, self.sink = self._pair()
        self.epoll.register(self.source.fileno(), READABLE)

    @staticmethod
    def _pair() -> tuple[socket.socket, socket.socket]:
        pair = socket.socketpair()
        for sock in pair:
            sock.setblocking(False)
        return pair

    def open(self, mark: bytes | None = None) -> None:
        self.lanes.open(self.source.fileno(), self.sink.fileno(), mark)

    def next(self, seconds: float = 0.0) -> int:
        turn = self.lanes.turn
        turn.until, turn.returns, turn.fresh = time.monotonic() + seconds, False, True
        return self.lanes.next()

    def arrived(self) -> bytes:
        try:
            return self.client.recv(1 << 20)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        self.lanes.end()
        self.epoll.close()
        for sock in (self.engine, self.source, self.client, self.sink):
            sock.close()


@pytest.fixture(autouse=True)
def known_sizes() -> None:
    ChunkScanner().feed(CHUNK)


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def bench(request) -> Iterator[Bench]:
    bench = Bench(request.param)
    yield bench
    bench.close()


def test_a_whole_chunk_is_passed_on_and_nobody_is_told(bench: Bench) -> None:
    bench.open()
    bench.engine.send(CHUNK)
    assert bench.next() == OVER
    assert bench.arrived() == CHUNK
    assert bench.lanes.turn.bytes == len(CHUNK)


def test_without_a_lane_an_event_is_told_and_nothing_read(bench: Bench) -> None:
    bench.engine.send(CHUNK)
    assert bench.next() == EVENT
    assert (bench.lanes.turn.number, bench.lanes.turn.events) == (bench.source.fileno(), READABLE)
    assert bench.source.recv(100) == CHUNK


def test_a_closed_lane_is_none(bench: Bench) -> None:
    bench.open()
    assert bench.lanes.close(bench.source.fileno()) == 0
    bench.engine.send(CHUNK)
    assert bench.next() == EVENT


def test_a_lane_tells_its_count_again_and_a_new_one_begins_anew(bench: Bench) -> None:
    marked = chunk(b"data: %b\n\n" % MARK)
    ChunkScanner().feed(marked)
    bench.open(MARK)
    bench.engine.send(marked)
    bench.next()
    number = bench.source.fileno()
    assert [bench.lanes.close(number), bench.lanes.close(number), bench.lanes.close(number + 1)] == [1, 1, 0]
    bench.open(MARK)
    assert bench.lanes.close(number) == 0


def test_data_together_with_an_end_is_told_as_an_event(bench: Bench) -> None:
    """What comes with a hang-up is read by who handles the hang-up, so that both are seen in order."""
    bench.open()
    bench.engine.send(CHUNK)
    bench.engine.close()
    assert bench.next() == EVENT
    assert bench.lanes.turn.events & select.EPOLLHUP
    assert bench.source.recv(100) == CHUNK


@pytest.mark.parametrize(
    "data",
    [
        CHUNK * 2,
        CHUNK[:-1],
        chunk(b"data: 1\n"),
        b"0\r\n\r\n",
        b"zz",
        b"\n\n\r\n",
        b"5;a=b\r\nabc\n\n\r\n",
        b"-2\r\n\n\n\r\n",
    ],
    ids=["two", "a part", "no event", "the last", "no size", "an end alone", "an extension", "a sign"],
)
def test_what_is_not_one_whole_chunk_is_handed_back(bench: Bench, data: bytes) -> None:
    bench.open()
    bench.engine.send(data)
    assert bench.next() == NOT_WHOLE
    assert bench.lanes.read() == data
    assert bench.lanes.turn.number == bench.source.fileno()
    assert bench.arrived() == b""


def test_the_end_of_the_input_is_handed_back_as_nothing(bench: Bench) -> None:
    bench.open()
    bench.engine.shutdown(socket.SHUT_WR)
    assert bench.next() == NOT_WHOLE
    assert bench.lanes.read() == b""


def test_with_a_mark_only_single_events_with_it_pass_and_are_counted(bench: Bench) -> None:
    marked, plain = chunk(b"data: %b\n\n" % MARK), chunk(b"data: other\n\n")
    two, mixed = chunk(b"data: %b\n\n" % MARK * 2), chunk(b"data: usage\r\n\r\ndata: %b\n\n" % MARK)
    ChunkScanner().feed(marked + plain + two + mixed)
    bench.open(MARK)
    seen = []
    for data in (marked, plain, marked, two, mixed):
        bench.engine.send(data)
        seen.append(bench.next())
    assert seen == [OVER, NOT_WHOLE, OVER, NOT_WHOLE, NOT_WHOLE]
    assert bench.arrived() == marked * 2
    assert bench.lanes.close(bench.source.fileno()) == 2
    bench.open(MARK)
    assert bench.lanes.close(bench.source.fileno()) == 0


def test_an_error_of_reading_is_told(bench: Bench) -> None:
    """A listening socket is readable when somebody connects, and cannot be read."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        bench.epoll.register(listener.fileno(), READABLE)
        bench.lanes.open(listener.fileno(), bench.sink.fileno(), None)
        with socket.create_connection(listener.getsockname()):
            assert bench.next(1.0) == NOT_READ
    assert bench.lanes.error().errno == errno.ENOTCONN


def test_a_full_client_is_an_error_of_writing_with_all_that_was_read(bench: Bench) -> None:
    with suppress(BlockingIOError):
        while True:
            bench.sink.send(bytes(65_536))
    bench.open()
    bench.engine.send(CHUNK)
    assert bench.next() == NOT_WRITTEN
    assert bench.lanes.read() == CHUNK
    assert isinstance(bench.lanes.error(), BlockingIOError)


def test_a_client_that_has_left_is_an_error_of_writing_and_no_signal(bench: Bench) -> None:
    bench.client.close()
    bench.open()
    bench.engine.send(CHUNK)
    assert bench.next() == NOT_WRITTEN
    assert isinstance(bench.lanes.error(), BrokenPipeError)


def test_what_could_not_be_written_is_kept_to_the_byte(bench: Bench) -> None:
    event = b"data: " + bytes(4_000) + b"\n\n"
    large = chunk(event)
    WHOLE_CHUNKS[large[:5]] = len(large)
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    sink, _ = listener.accept()
    sink.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_608)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_608)
    sink.setblocking(False)
    bench.lanes.open(bench.source.fileno(), sink.fileno(), None)
    rest, rounds = b"", 0
    while not rest and rounds < 10_000:
        rounds += 1
        bench.engine.send(large)
        what = bench.next()
        if what == PARTLY_WRITTEN:
            rest = bench.lanes.unwritten()
        elif what == NOT_WRITTEN:
            rest = bench.lanes.read()
    got = bytearray()
    client.settimeout(0.3)
    try:
        while piece := client.recv(1 << 20):
            got += piece
    except TimeoutError:
        pass
    same = bytes(got) + rest == large * rounds
    assert same
    for sock in (listener, client, sink):
        sock.close()


def test_it_waits_no_longer_than_it_was_told_and_looks_once_at_least(bench: Bench) -> None:
    started = time.monotonic()
    assert bench.next(0.05) == OVER
    assert time.monotonic() - started >= 0.05
    bench.engine.send(CHUNK)
    assert bench.next(-1.0) == EVENT


def test_what_was_moved_forward_meanwhile_holds(bench: Bench) -> None:
    bench.engine.send(CHUNK)
    assert bench.next(100.0) == EVENT
    bench.lanes.turn.until = time.monotonic()
    bench.source.recv(100)
    assert bench.lanes.next() == OVER


def test_it_returns_after_the_events_that_are_known(bench: Bench) -> None:
    bench.epoll.register(bench.sink.fileno(), WRITABLE)
    bench.engine.send(CHUNK)
    seen = {bench.next(100.0)}
    bench.lanes.turn.returns = True
    seen.add(bench.lanes.next())
    assert seen == {EVENT}
    assert bench.lanes.next() == OVER


def test_handlers_of_signals_run_while_it_waits(bench: Bench) -> None:
    told: list[float] = []
    before = signal.signal(signal.SIGALRM, lambda _number, _frame: told.append(time.monotonic()))
    started = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        while not told:
            bench.next(4.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert told[0] - started < 2


def test_lanes_that_have_ended_can_still_be_told_to_return(bench: Bench) -> None:
    """asyncio may schedule a callback after its selector was closed; that must not touch freed memory."""
    bench.open()
    bench.lanes.end()
    bench.lanes.turn.returns = True
    assert bench.lanes.turn.returns
    assert bench.lanes.close(bench.source.fileno()) == 0 or isinstance(bench.lanes, PythonLanes)
    bench.lanes.end()


sizes = st.integers(min_value=0, max_value=4_200)
payloads = st.builds(
    lambda size, end: b"d" * size + end,
    sizes,
    st.sampled_from([b"\n\n", b"\n", MARK + b"\n\n", b"\r\n\r\n" + MARK + b"\n\n", b""]),
)
frames = payloads.filter(bool).map(chunk)
reads = st.one_of(
    frames,
    frames.map(bytes.upper),
    st.tuples(frames, st.integers(min_value=0, max_value=4_300)).map(lambda pair: pair[0][: pair[1]]),
    st.binary(max_size=40),
    st.tuples(st.sampled_from([b"0", b"00", b"+", b" ", b"0x"]), frames).map(b"".join),
).filter(bool)


@given(st.lists(reads, min_size=1, max_size=8), st.sampled_from([None, MARK, b"d"]))
def test_both_kinds_do_the_same(arrivals: list[bytes], mark: bytes | None) -> None:
    """With every size known: only C knows those that Python has not learned yet."""
    WHOLE_CHUNKS.clear()
    for data in arrivals:
        with suppress(FramingError):
            ChunkScanner().feed(data)
    results = []
    for kind in KINDS.values():
        bench = Bench(kind)
        bench.open(mark)
        steps: list[tuple[int, bytes]] = []
        for data in arrivals:
            bench.engine.send(data)
            what = bench.next()
            steps.append((what, bench.lanes.read() if what == NOT_WHOLE else bench.arrived()))
        results.append((steps, bench.lanes.turn.bytes, bench.lanes.close(bench.source.fileno())))
        bench.close()
    assert results[0] == results[1]


# ---- loading


def test_a_long_mark_is_refused() -> None:
    with select.epoll() as epoll:
        lanes = NativeLanes(epoll)
        lanes.open(0, 1, b"m" * MARK_LIMIT_BYTES)
        with pytest.raises(ValueError, match="the mark is too long"):
            lanes.open(0, 1, b"m" * (MARK_LIMIT_BYTES + 1))
        lanes.end()


@pytest.mark.parametrize("trouble", ["no library", "another layout"])
def test_without_a_library_that_fits_it_serves_in_python_and_says_so(
    trouble: str, monkeypatch, caplog, tmp_path
) -> None:
    monkeypatch.setattr(nativelanes, "_library", functools.cache(nativelanes._library.__wrapped__))
    if trouble == "no library":
        monkeypatch.setattr(nativelanes, "LIBRARY", tmp_path / "liblanes.so.1")
    else:
        monkeypatch.setattr(nativelanes, "LAYOUT", 0)
    with select.epoll() as epoll, caplog.at_level(logging.WARNING):
        assert isinstance(lanes_on(epoll), PythonLanes)
        with pytest.raises(NativeError, match=r"liblanes\.so\.1"):
            NativeLanes(epoll)
    assert "at a higher price" in caplog.text
