"""Programs started in the background: who they are, how they end, and what they said last.

A pid alone names nobody for long, so a process is remembered by pid and start time, and a signal goes through a pidfd
that was opened before the two were compared: a process that got a recycled pid is never hit.

Whatever belongs to a cluster also carries a mark in its environment. The mark survives everything that a state file
does not: a killed `up`, a parent that is gone, a file that was never written.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError

PROC = Path("/proc")
POLL_SECONDS = 0.05
LAST_LINES = 5
TAIL_BYTES = 32 * 1024


@dataclass(frozen=True)
class Identity:
    """A process for as long as it lives.

    Attributes:
        pid: Its number in the namespace of this machine.
        started: Its start time in clock ticks since boot.
    """

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        return identity(self.pid) == self

    def send(self, number: signal.Signals) -> bool:
        """Send a signal if the process still lives; return whether it did."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.alive:
                return False
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True


def identity(pid: int) -> Identity | None:
    """Return the identity of the process with that pid now, or None if there is none or it is a zombie."""
    fields = _stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return Identity(pid, int(fields[19]))


def children(pid: int) -> list[Identity]:
    """Return the living children of a process."""
    found = (identity(other) for other in _pids() if parent(other) == pid)
    return [child for child in found if child]


def parent(pid: int) -> int | None:
    """Return the pid of a process's parent, or None if the process is gone."""
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def marked(mark: str) -> list[Identity]:
    """Return every process whose environment has the entry `mark`, this process and its ancestors left out.

    Args:
        mark: `NAME=value`.
    """
    own = set(_ancestors(os.getpid()))
    found = []
    for pid in _pids():
        who = identity(pid)
        if who and pid not in own and mark.encode() in _environment(pid).split(b"\0"):
            found.append(who)
    return found


def end(processes: Iterable[Identity], *, grace_seconds: float) -> list[Identity]:
    """Ask processes to stop, kill those that have not after the grace, and return those that outlive even that."""
    left = [process for process in processes if process.send(signal.SIGTERM)] if grace_seconds else list(processes)
    left = _wait_gone(left, grace_seconds)
    left = [process for process in left if process.send(signal.SIGKILL)]
    return _wait_gone(left, 10)


def _wait_gone(processes: list[Identity], seconds: float) -> list[Identity]:
    deadline = time.monotonic() + seconds
    while processes and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        processes = [process for process in processes if process.alive]
    return processes


class Part:
    """A program that runs in the background and writes to a log file of its own.

    It may outlive the object and the process that made it: that is what `up` is for.
    """

    def __init__(self, name: str, argv: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> None:
        """Start the program in a session of its own, so that Ctrl-C reaches only the command that started it.

        Args:
            name: For people.
            argv: The command; its first word is looked up on this process's PATH.
            log: File for what it writes, made or added to; the command line comes first.
            environment: Its whole environment.
        """
        self.name, self.log, self.status = name, log, None
        with log.open("ab") as output:
            output.write(f"+ {' '.join(argv)}\n".encode())
            output.flush()
            # Not subprocess.Popen: its objects complain when they go while their program stays.
            self.pid = os.posix_spawnp(
                argv[0],
                list(argv),
                dict(environment),
                setsid=True,
                # Python ignores these two, and what a program ignores its children ignore.
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
                    (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
                ],
            )

    status: int | None
    """Exit status, negative for a signal, as last seen by `died`; None while it runs."""

    @property
    def died(self) -> bool:
        if self.status is None and os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status is not None

    def stop(self, *, grace_seconds: float) -> None:
        """Stop the program, by force after the grace, and wait until it is gone."""
        running = identity(self.pid)
        if not self.died and running:
            end([running], grace_seconds=grace_seconds)
        while not self.died:
            time.sleep(POLL_SECONDS)


def wait_until(
    ready: Callable[[], str | None], *, what: str, part: Part, others: Iterable[Part] = (), seconds: float
) -> None:
    """Wait until `ready` returns None; anything else it returns says what is missing.

    Args:
        ready: The probe; connection errors count as "not yet".
        what: What is waited for, for people.
        part: The part that the probe asks; its log tells the cause when time runs out.
        others: Parts that must stay alive meanwhile as well.
        seconds: How long to wait.

    Raises:
        ClusterError: A part died, or the time ran out; the message ends with the last lines of the log concerned.
    """
    deadline = time.monotonic() + seconds
    watched = (part, *others)
    while True:
        for one in watched:
            if one.died:
                raise ClusterError(
                    f"{one.name} ended with status {one.status}. "
                    f"Its last words:\n{last_words(one.log)}\nThe whole log: {one.log}"
                )
        try:
            missing = ready()
        except OSError as error:
            missing = str(error)
        if missing is None:
            return
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{what}: not after {seconds:.0f} s ({missing}). "
                f"The last words of {part.name}:\n{last_words(part.log)}\nThe whole log: {part.log}"
            )
        time.sleep(POLL_SECONDS)


# How the parts mark a line that is not worth showing: klog's I and W; logfmt and JSON levels; etcd's " I | ". Indented
# lines belong to stack traces and to lists of options.
_CHATTER = re.compile(r"^\+ |^[IW]\d{4} |level=(debug|info)|\"level\":\"(debug|info|warn)\"| [IDNW] \| |^\[INFO\]|^\s")
_TROUBLE = re.compile(
    r"^[EF]\d{4} |error|fatal|panic|fail|unknown|invalid|not defined|cannot|denied| [CE] \| ", re.IGNORECASE
)


def last_words(log: Path) -> str:
    """Return the last lines of a log that tell a cause: those that speak of trouble if there are any, else the last."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except FileNotFoundError:
        lines = []
    telling = [line for line in lines if not _CHATTER.search(line)]
    trouble = [line for line in telling if _TROUBLE.search(line)]
    chosen = list(dict.fromkeys(trouble or telling or lines))[-LAST_LINES:]
    return "\n".join(f"  {line}" for line in chosen) or "  (it has written nothing)"


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())


def _ancestors(pid: int) -> Iterator[int]:
    current: int | None = pid
    while current:
        yield current
        current = parent(current)


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the command, which may itself contain blanks and brackets."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def _environment(pid: int) -> bytes:
    try:
        return (PROC / str(pid) / "environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
