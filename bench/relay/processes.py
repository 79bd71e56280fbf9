"""Processes under measurement: pinned to a core, their CPU time and memory read from /proc, always ended by id."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from e2e.cluster import process

STOP_SECONDS = 5.0
# Real-time priority, where the system allows it: a proxy that waits for its core behind other programs does its work
# late and in bulk, and looks cheaper than it is.
FIRST_IN_LINE = ("chrt", "--rr", "1")
NANOSECONDS_PER_SECOND = 1_000_000_000
LOG_TAIL_CHARACTERS = 2000
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
BYTES_PER_KIBIBYTE = 1024


class BenchError(Exception):
    """The bench cannot go on; the text says what to do."""


class Pinned:
    """A process and its children on one core, as a context manager that ends them.

    It gets a session of its own, so that Ctrl-C reaches this program alone and the processes end in order.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[object],
        *,
        core: int,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        capture: bool = False,
    ) -> None:
        """Start the process.

        Args:
            name: For error texts and the log's file name.
            argv: The command, each part as text or as something whose text it is.
            core: The only core it may use.
            folder: Its working folder, where its log goes.
            environment: Variables besides those of this process.
            capture: Give standard output to `lines()` instead of the log.
        """
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*first_in_line(), "taskset", "-c", str(core), *map(str, argv)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if capture else log,
                stderr=log,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def output(self) -> IO[bytes]:
        """Standard output, line by line, of a process started with `capture`."""
        assert self._process.stdout is not None
        return self._process.stdout

    def check_alive(self) -> None:
        """Raise BenchError with the end of the log when the process has ended."""
        status = self._process.poll()
        if status is not None:
            raise BenchError(f"{self.name} ended with status {status}. The end of its log:\n{self.log_tail()}")

    def wait(self, seconds: float) -> int:
        """Return the exit status, which must come in the given time."""
        return self._process.wait(seconds)

    def log_tail(self) -> str:
        """Return the last lines it wrote."""
        return self.log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]

    def cpu_seconds(self) -> float:
        """Return the user and system time that the process and its children have used."""
        return sum(cpu_ticks(_stat(pid)) for pid in self.tree()) / TICKS_PER_SECOND

    def waited_seconds(self) -> float:
        """Return how long the process and its children were ready to run while something else had the core."""
        tasks = [task for pid in self.tree() for task in Path(f"/proc/{pid}/task").iterdir()]
        waits = [int((task / "schedstat").read_text().split()[1]) for task in tasks]
        return sum(waits) / NANOSECONDS_PER_SECOND

    def resident_bytes(self) -> int:
        """Return the resident memory of the process and its children; pages they share count for each."""
        return sum(resident_bytes(Path(f"/proc/{pid}/status").read_text()) for pid in self.tree())

    def tree(self) -> list[int]:
        """Return the ids of the process and everything below it."""
        found = [self._process.pid]
        for pid in found:
            found.extend(child.pid for child in process.children(pid))
        return found

    def stop(self) -> None:
        """End the process and what it leaves behind: ask, wait, then kill."""
        if self._process.poll() is None:
            below = [who for pid in self.tree()[1:] if (who := process.identity(pid))]
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            process.end(below, grace_seconds=0)
        if self._process.stdout is not None:
            self._process.stdout.close()


def _stat(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text()


def cpu_ticks(stat: str) -> int:
    """Return utime + stime, in clock ticks, of a /proc/PID/stat line. The command's name may hold any character."""
    fields = stat.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def resident_bytes(status: str) -> int:
    """Return VmRSS of a /proc/PID/status text in bytes; a process that is ending has none."""
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * BYTES_PER_KIBIBYTE
    return 0


@functools.cache
def first_in_line() -> tuple[str, ...]:
    """Return the command that puts what follows it in front of other programs; nothing where that is not allowed."""
    allowed = subprocess.run([*FIRST_IN_LINE, "true"], capture_output=True, check=False).returncode == 0
    return FIRST_IN_LINE if allowed else ()


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that nobody listens on now.

    Another program may take one before it is used, so whoever uses one checks that its own process answers.
    """
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def two_cores() -> tuple[int, int]:
    """Return one core for the proxy and one for load and backend."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchError("this process may use one core only; the bench needs two: one for the proxy, one for the load")
    return cores[0], cores[1]
