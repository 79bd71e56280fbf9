"""What /proc says about processes, and that none is left behind."""

import os
import socket
import sys
import time
from pathlib import Path

import pytest

from bench.relay import processes
from bench.relay.processes import BenchError, Pinned
from e2e.cluster import process

CORE = min(os.sched_getaffinity(0))
# A parent whose child burns CPU and ignores a polite request.
BURN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
memory = bytearray(1 << 24)
print("up", flush=True)
while True:
    pass
"""
FAMILY = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}])"


def test_cpu_time_is_read_after_a_command_name_with_brackets_and_blanks():
    line = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 30 12 5 5 20 0 1 0 100 0 0"
    assert processes.cpu_ticks(line) == 42


@pytest.mark.parametrize(
    ("status", "size"),
    [
        pytest.param("Name:\tx\nVmRSS:\t    2048 kB\n", 2 << 20, id="living"),
        pytest.param("Name:\tx\nState:\tZ\n", 0, id="ending"),
    ],
)
def test_resident_memory_is_in_bytes(status, size):
    assert processes.resident_bytes(status) == size


def test_the_tree_is_measured_as_a_whole_and_ends_as_a_whole(tmp_path):
    with Pinned("family", [sys.executable, "-c", FAMILY], core=CORE, folder=tmp_path, capture=True) as family:
        assert next(iter(family.output)) == b"up\n"
        parent, child = family.tree()
        people = [process.identity(parent), process.identity(child)]
        assert os.sched_getaffinity(child) == {CORE}
        before = family.cpu_seconds()
        deadline = time.monotonic() + 20
        while family.cpu_seconds() - before < 0.2:
            assert time.monotonic() < deadline, "the child's CPU time is not counted"
            time.sleep(0.05)
        assert family.resident_bytes() > 16 << 20
    assert not any(who.alive for who in people)


def test_a_process_that_ends_early_is_reported_with_its_last_words(tmp_path):
    script = "import sys; sys.exit('port is taken')"
    with Pinned("proxy", [sys.executable, "-c", script], core=CORE, folder=tmp_path) as proxy:
        proxy.wait(20)
        with pytest.raises(BenchError, match=r"proxy ended with status 1(.|\n)*port is taken"):
            proxy.check_alive()


def test_free_ports_are_different_and_can_be_bound():
    ports = processes.free_ports(3)
    assert len(set(ports)) == 3
    for port in ports:
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_one_core_is_not_enough(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {3})
    with pytest.raises(BenchError, match="two"):
        processes.two_cores()


def test_the_log_of_a_process_stays_in_its_folder(tmp_path):
    with Pinned("proxy", [sys.executable, "-c", "print('hello')"], core=CORE, folder=tmp_path) as proxy:
        proxy.wait(20)
        assert Path(tmp_path / "proxy.log").read_text() == "hello\n"
        assert proxy.log_tail() == "hello\n"
