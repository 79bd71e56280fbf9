"""The load notices every way in which a relay can damage a stream: each one here is played by a relay that does it."""

import contextlib
import os
import re
import secrets
import socket
import threading

import pytest

from bench.relay import binaries, loads
from bench.relay.loads import Load
from bench.relay.processes import BenchError, Pinned, free_ports, two_cores
from bench.relay.rounds import wait_for_answer

LOAD = Load(name="tiny", streams=4, chunks=5, every_ms=10, warmup_ms=0, measure_ms=100)
SECOND = b'content":" 000001 '


@pytest.fixture(scope="module")
def backend(tmp_path_factory):
    folder = tmp_path_factory.mktemp("backend")
    nonce = secrets.token_hex(8)
    (port,) = free_ports(1)
    argv = [binaries.relaybench(), "backend", "-port", port, "-nonce", nonce]
    with Pinned("backend", argv, core=two_cores()[1], folder=folder) as process:
        wait_for_answer(port, nonce, process)
        yield port, nonce


class Relay:
    """Passes requests on, and whole answers back after `damage` has seen them."""

    def __init__(self, backend_port, damage):
        self._backend_port = backend_port
        self._damage = damage
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = []
        self.port = self._listener.getsockname()[1]

    def __enter__(self):
        self._start(self._accept)
        return self

    def __exit__(self, *_):
        # Closing alone would not wake the thread that waits in accept().
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(20)
            assert not thread.is_alive()
        self._listener.close()

    def _start(self, target, *args):
        thread = threading.Thread(target=target, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                self._start(self._serve, self._listener.accept()[0])

    def _serve(self, client):
        with client, socket.create_connection(("127.0.0.1", self._backend_port)) as engine:
            client.settimeout(10)
            request = b""
            while not request.endswith(b"}]}"):
                request += client.recv(65536)
            engine.sendall(request)
            answer = b""
            while not answer.endswith(b"0\r\n\r\n"):
                answer += engine.recv(65536)
            client.sendall(self._damage(answer))


def faithful(answer):
    return answer.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)


def without_frames(answer):
    """The same body, ended by the connection."""
    head, _, body = answer.partition(b"\r\n\r\n")
    head = head.replace(b"transfer-encoding: chunked", b"connection: close")
    return head + b"\r\n\r\n" + b"".join(re.findall(rb"[0-9a-f]+\r\n(.+?\n\n)\r\n", body, re.DOTALL))


def one_byte_changed(answer):
    return answer.replace(SECOND, b'content":" 000001-')


def event_lost(answer):
    return re.sub(rb"[0-9a-f]+\r\ndata: [^\n]*" + SECOND + rb"[^\n]*\n\n\r\n", b"", answer)


def event_doubled(answer):
    return re.sub(rb"([0-9a-f]+\r\ndata: [^\n]*" + SECOND + rb"[^\n]*\n\n\r\n)", rb"\1\1", answer)


def other_stream(answer):
    return re.sub(rb"(chatcmpl-[0-9a-f]+-)\d{8}", rb"\g<1>99999999", answer)


def other_backend(answer):
    return re.sub(rb"chatcmpl-[0-9a-f]+", b"chatcmpl-" + b"0" * 16, answer)


def time_changed(answer):
    return re.sub(rb'(content":" 000001 )\d{19}', rb"\g<1>" + b"1" * 19, answer)


def cut_in_the_middle(answer):
    return answer[: len(answer) // 2]


def last_chunk_missing(answer):
    return answer.removesuffix(b"0\r\n\r\n")


def end_mark_missing(answer):
    return re.sub(rb"[0-9a-f]+\r\n: crc32 .*\r\n0\r\n\r\n", b"0\r\n\r\n", answer, flags=re.DOTALL)


def broken_chunk_size(answer):
    return re.sub(rb"\r\n\r\n[0-9a-f]+\r\n", b"\r\n\r\nzz\r\n", answer, count=1)


def error_status(answer):
    return answer.replace(b"200 OK", b"502 Bad Gateway", 1)


def no_answer(_answer):
    return b""


def run(backend, damage, folder):
    backend_port, nonce = backend
    with Relay(backend_port, damage) as relay:
        return loads.run(
            LOAD, target_port=relay.port, nonce=nonce, core=two_cores()[1], folder=folder, at_edge=lambda _edge: None
        )


@pytest.mark.parametrize("damage", [faithful, without_frames])
def test_a_relay_that_changes_nothing_but_framing_loses_no_stream(backend, damage, tmp_path):
    seen = run(backend, damage, tmp_path)
    assert (seen.lost, seen.reasons) == (0, ())
    assert seen.complete > LOAD.streams
    assert seen.first_byte_p50_ms > 0


@pytest.mark.parametrize(
    ("damage", "counted_as"),
    [
        (one_byte_changed, "corrupt"),
        (event_lost, "corrupt"),
        (event_doubled, "corrupt"),
        (other_stream, "corrupt"),
        (other_backend, "corrupt"),
        (time_changed, "corrupt"),
        (end_mark_missing, "short"),
        (cut_in_the_middle, "short"),
        (last_chunk_missing, "short"),
        (broken_chunk_size, "short"),
        (error_status, "refused"),
        (no_answer, "refused"),
    ],
)
def test_every_damaged_stream_is_counted(backend, damage, counted_as, tmp_path):
    seen = run(backend, lambda answer: damage(faithful(answer)), tmp_path)
    assert seen.complete == 0
    assert getattr(seen, counted_as) == seen.lost > LOAD.streams
    assert all(reason.startswith(f"{counted_as}: ") for reason in seen.reasons)


def test_the_edges_of_the_measured_time_are_reported_in_order(backend, tmp_path):
    edges = []
    port, nonce = backend
    seen = loads.run(LOAD, target_port=port, nonce=nonce, core=two_cores()[1], folder=tmp_path, at_edge=edges.append)
    assert edges == ["begin", "end"]
    assert 0 < seen.events <= 2 * LOAD.due_events


def test_a_taken_port_is_noticed_by_the_nonce(backend, tmp_path, monkeypatch):
    monkeypatch.setattr("bench.relay.rounds.START_SECONDS", 0.3)
    port, _nonce = backend
    core = min(os.sched_getaffinity(0))
    with (
        Pinned("other", ["sleep", "60"], core=core, folder=tmp_path) as other,
        pytest.raises(BenchError, match="another backend answered"),
    ):
        wait_for_answer(port, "f" * 16, other)
