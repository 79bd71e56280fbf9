"""Starting a server of either kind and talking to it, with nothing between a request and its bytes."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from e2e import cache, vllm
from e2e.fakevllm import model

Kind = Literal["vllm", "fakevllm"]
READY_SECONDS = 600.0
ANSWER_SECONDS = 120.0
STOP_SECONDS = 60.0
POLL_SECONDS = 0.1
FAKE_STEP_SECONDS = "0.004"


class TargetError(RuntimeError):
    """A server did not start or did not stop."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response as it came: headers by name in lower case, the body without its framing."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


class Target:
    """A running server.

    Args:
        process: The server's main process.
        port: Where it listens on 127.0.0.1.
        log: Its output.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.log = log

    def send(
        self, method: str, path: str, *, data: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Send one request on a connection of its own and return the whole response.

        Raises:
            OSError: No connection, or it was cut.
            http.client.HTTPException: It was cut within the response.
        """
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        ) as connection:
            connection.request(method, path, body=data, headers=dict(headers or {}))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())

    def signal(self, number: signal.Signals) -> None:
        """Send the main process a signal."""
        self.process.send_signal(number)

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Return the exit status once the process has ended.

        Raises:
            TargetError: It has not within that time.
        """
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TargetError(f"the server did not stop within {seconds:.0f} s; see {self.log}") from None


def free_port() -> int:
    """Return a port that nothing listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def model_folder() -> Path:
    """Return a folder with the made-up model."""
    return cache.build("made-up-model", cache.digest(Path(model.__file__)), model.write, usually="1 s")


def argv(kind: Kind, folder: Path, flags: Sequence[str]) -> list[str]:
    """Return the command line that serves the model in `folder`."""
    if kind == "vllm":
        return vllm.command(vllm.folder(), folder, flags=flags)
    return [sys.executable, "-m", "e2e.fakevllm", "serve", str(folder), *flags]


def environment(kind: Kind, home: Path) -> dict[str, str]:
    """Return the server's environment."""
    if kind == "vllm":
        return vllm.environment(home)
    return {**os.environ, "FAKEVLLM_STEP_SECONDS": FAKE_STEP_SECONDS}


@contextlib.contextmanager
def serve(kind: Kind, flags: Sequence[str], *, variables: Mapping[str, str] | None = None) -> Iterator[Target]:
    """Start a server, wait until it is ready, and stop it in the end.

    Args:
        kind: Real vLLM or its stand-in.
        flags: Of `vllm serve`, without host and port.
        variables: Additions to the server's environment.

    Raises:
        TargetError: It ended before it was ready, or never got ready.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-conformance-") as name:
        home = Path(name)
        port = free_port()
        words = argv(kind, model_folder(), [*flags, "--host", "127.0.0.1", "--port", str(port)])
        log = cache.cache_root() / "logs" / f"conformance-{kind}-{port}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(
                words,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**environment(kind, home), **(variables or {})},
                start_new_session=True,
            )
        target = Target(process, port, log)
        try:
            _await_ready(target)
            yield target
        finally:
            _stop(process)


def _await_ready(target: Target) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if target.process.poll() is not None:
            raise TargetError(f"the server ended with status {target.process.returncode}; see {target.log}")
        with contextlib.suppress(OSError, http.client.HTTPException):
            if target.send("GET", "/health").status == 200:
                return
        time.sleep(POLL_SECONDS)
    raise TargetError(f"the server was not ready within {READY_SECONDS:.0f} s; see {target.log}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server's whole session: real vLLM has an engine process of its own."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Flock:
    """Requests sent at the same time, each from a thread of its own."""

    def __init__(self, target: Target, path: str, bodies: Sequence[bytes]) -> None:
        self.replies: list[Reply | str] = [""] * len(bodies)
        self._threads = [
            threading.Thread(target=self._send, args=(target, path, index, body), daemon=True)
            for index, body in enumerate(bodies)
        ]

    def _send(self, target: Target, path: str, index: int, body: bytes) -> None:
        try:
            self.replies[index] = target.send("POST", path, data=body, headers={"content-type": "application/json"})
        except (OSError, http.client.HTTPException) as error:
            self.replies[index] = type(error).__name__

    def start(self, *, apart_seconds: float = 0.0) -> None:
        """Send them all, one after another with that pause."""
        for thread in self._threads:
            thread.start()
            time.sleep(apart_seconds)

    def join(self) -> list[Reply | str]:
        """Return all replies, or the name of what cut the connection."""
        for thread in self._threads:
            thread.join(ANSWER_SECONDS)
        return self.replies

    @property
    def open(self) -> int:
        """How many are still unanswered."""
        return sum(thread.is_alive() for thread in self._threads)
