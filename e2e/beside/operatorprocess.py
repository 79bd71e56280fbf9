"""`penstock operator` as its own process, started by its command line."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Self

from e2e.beside.installation import REPOSITORY
from e2e.beside.waiting import WAIT_SECONDS, wait_for

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
KIBIBYTES_PER_MEBIBYTE = 1024
LAST_LINES = 12


class OperatorProcess:
    """One process; it ends with the one that started it, even when that is killed.

    Attributes:
        log: File with what it says.
        health, metrics: Its ports on loopback.
        process: It.
        started: When it was started, as seconds since the epoch.
    """

    def __init__(self, kubeconfig: Path, log: Path, *flags: str, **settings: str) -> None:
        """Start it.

        Args:
            kubeconfig: Whose rights it has.
            log: File for what it says.
            flags: Of its command line.
            settings: `PENSTOCK_*` variables without the prefix, in lower case.
        """
        self.log = log
        self.health, self.metrics = _free_port(), _free_port()
        wanted = {
            "image": "localhost/penstock:test",
            "listen_address": "127.0.0.1",
            "health_port": str(self.health),
            "metrics_port": str(self.metrics),
            **settings,
        }
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        environment |= {f"PENSTOCK_{name.upper()}": value for name, value in wanted.items()}
        environment |= {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(REPOSITORY / "operator")}
        environment |= {"PYTHONWARNINGS": "error::ResourceWarning"}
        self.started = time.time()
        with log.open("w") as output:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", "penstock", "operator", *flags],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def until_ready(self) -> Self:
        """Wait for `/readyz`."""

        def ready() -> bool:
            assert self.alive, f"the operator ended with {self.process.returncode}: {self.text()}"
            return self.is_ready()

        wait_for(ready, "ready operator")
        return self

    def is_ready(self) -> bool:
        """Return whether `/readyz` answers 200."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def leads(self) -> bool:
        """Return whether its metrics say that it leads."""
        try:
            return self.metric("penstock_operator_leader") == 1
        except OSError:
            return False

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of a metric that carry these labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.partition("{")[0].partition(" ")[0] == name and all(label in line for label in wanted)
        )

    def cpu_seconds(self) -> float:
        """Return the CPU time it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS

    def peak_mebibytes(self) -> float:
        """Return the most memory it has had resident."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(peak.split()[1]) / KIBIBYTES_PER_MEBIBYTE

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        if self.alive:
            self.process.send_signal(number)
        return self.ended()

    def ended(self, seconds: float = WAIT_SECONDS) -> int:
        """Wait for the end and return the exit status."""
        return self.process.wait(timeout=seconds)

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        if self.alive:
            self.process.kill()
        self.process.wait()

    def text(self) -> str:
        """Return all that it has said."""
        return self.log.read_text()

    def last_words(self) -> str:
        """Return the end of that."""
        return "\n".join(self.text().splitlines()[-LAST_LINES:])


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
