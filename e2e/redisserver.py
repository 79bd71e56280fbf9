"""A real Redis on loopback for tests: Debian's package, unpacked and not installed; see `e2e.cluster.debian`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from e2e.cluster import debian

PACKAGES = ("redis-server",)
START_SECONDS = 10.0
LOOK_SECONDS = 0.02


def program() -> tuple[Path, dict[str, str]]:
    """Return the server and the environment it needs, unpacked on first use.

    Raises:
        ClusterError: this is no Debian-like machine, or apt fails.
    """
    packages = debian.unpack(PACKAGES)
    return packages.program("redis-server"), packages.environment()


class RedisServer:
    """One server process, without a file on disk: what it holds is gone when it ends.

    Attributes:
        port: Where it listens on 127.0.0.1; the same after a restart.
        password: What clients must show; empty for nothing.
    """

    def __init__(self, *, password: str = "", options: tuple[str, ...] = ()) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.password = password
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its URL, with the password."""
        credentials = f":{self.password}@" if self.password else ""
        return f"redis://{credentials}127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            TimeoutError: it does not.
        """
        path, environment = program()
        command = [path, "--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "no"]
        if self.password:
            command += ["--requirepass", self.password]
        self._process = subprocess.Popen(
            [*map(str, command), *self._options],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                self.stop()
                raise TimeoutError("redis-server did not start")
            time.sleep(LOOK_SECONDS)

    def freeze(self) -> None:
        """Let it hang, connections open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash would."""
        self._signal(signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        """End it, however it is."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as client:
            client.sendall(b"PING\r\n")
            return client.recv(100)[:1] in {b"+", b"-"}
        return False
