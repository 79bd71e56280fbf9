"""Prometheus itself: Debian's package, unpacked and not installed (see `e2e.cluster.debian`), as a process of its own.

It runs in the network of whoever starts it. In the cluster's, it reads pods at their addresses, and pods reach it at
the node's.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from e2e.cluster import debian
from e2e.cluster.errors import ClusterError

PACKAGES = ("prometheus",)
START_SECONDS = 30.0
STOP_SECONDS = 10.0
ANSWER_SECONDS = 5.0
LOOK_SECONDS = 0.05


def binary() -> Path:
    """Return the path of Prometheus, unpacked on first use.

    Raises:
        ClusterError: This is no Debian-like machine, or apt fails.
    """
    return debian.unpack(PACKAGES).program("prometheus")


class PrometheusServer:
    """One Prometheus; it keeps its series when it is stopped and started again.

    Args:
        program: What `binary` returns.
        address: Where it listens.
        folder: For its configuration, series and log.

    Attributes:
        url: Where its API is, the same after a restart.
        targets_file: What is to be scraped, as `show_targets` writes it.
    """

    def __init__(self, program: Path, *, address: str, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind((address, 0))
            self._listen = f"{address}:{probe.getsockname()[1]}"
        self.url = f"http://{self._listen}"
        self.targets_file = folder / "targets.json"
        self._program = program
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self, scrape_configs: Sequence[dict[str, Any]], *, interval_seconds: float) -> None:
        """Say what is scraped, and how often; it counts from the next start."""
        every = f"{round(interval_seconds * 1000)}ms"
        configuration = {
            "global": {"scrape_interval": every, "scrape_timeout": every},
            "scrape_configs": list(scrape_configs),
        }
        self._configuration.write_text(json.dumps(configuration))  # YAML holds JSON

    def show_targets(self, targets: Sequence[dict[str, Any]]) -> None:
        """Say what discovery has found; Prometheus notices by itself."""
        scratch = self.targets_file.with_suffix(".new")
        scratch.write_text(json.dumps(targets))
        scratch.rename(self.targets_file)

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            ClusterError: It does not; the message holds what it said last.
        """
        argv = [
            str(self._program),
            f"--config.file={self._configuration}",
            f"--storage.tsdb.path={self._folder / 'series'}",
            f"--web.listen-address={self._listen}",
        ]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                argv, env=os.environ, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._ready():
            if time.monotonic() > deadline or self._process.poll() is not None:
                self.stop()
                last = "\n".join(self._log.read_text().splitlines()[-10:])
                raise ClusterError(f"Prometheus did not start:\n{last}")
            time.sleep(LOOK_SECONDS)

    def freeze(self) -> None:
        """Let it hang: connections are taken, and none is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it, however it is."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and value of each series of an instant query."""
        url = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer:  # noqa: S310 - the server's own
            found = json.load(answer)["data"]["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    @property
    def _configuration(self) -> Path:
        return self._folder / "prometheus.yml"

    @property
    def _log(self) -> Path:
        return self._folder / "prometheus.log"

    def _ready(self) -> bool:
        url = f"{self.url}/-/ready"
        with suppress(OSError), urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer:  # noqa: S310 - as above
            return bool(answer.status == 200)
        return False
