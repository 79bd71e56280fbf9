"""A control plane with Penstock installed, operators beside it, and an audit log that saw every write.

Operators are processes of their own, started by their command line, and authenticate as the ServiceAccount of the
installation, so they have its rights and no others. Nothing schedules pods and no kubelet runs them: what is measured
is the operator and the API server, on the same cores.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.operator.api import Api
from e2e import audit
from e2e.cache import say
from e2e.cluster.controlplane import ControlPlane

REPOSITORY = Path(__file__).parents[2]
NAMESPACE = "penstock-system"
OPERATOR_USER = f"system:serviceaccount:{NAMESPACE}:penstock-operator"
OPERATOR_GROUPS = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
SERVICES = "198.19.0.0/16"  # room for the Services of the largest fleet, twice
READY_SECONDS = 60
STOP_SECONDS = 20
LAST_LINES = 12
NOT_INSTALLED = frozenset({"Deployment", "PodDisruptionBudget", "Service"})
"""What of the installation only makes sense where the operator runs as a pod."""


class BenchError(Exception):
    """The bench cannot go on; the text says what was waited for."""


def wait_for(holds: Callable[[], Any], what: str, *, seconds: float, poll_seconds: float = 0.05) -> Any:
    """Return the first true value.

    Raises:
        BenchError: None came in time.
    """
    deadline = time.monotonic() + seconds
    while not (value := holds()):
        if time.monotonic() > deadline:
            raise BenchError(f"no {what} within {seconds:g} s")
        time.sleep(poll_seconds)
    return value


class Operator:
    """One `penstock operator` process.

    Attributes:
        pid: Its number.
        started: When it was started, as seconds since the epoch.
    """

    def __init__(self, kubeconfig: Path, log: Path, **settings: str) -> None:
        """Start it.

        Args:
            kubeconfig: Whose rights it has.
            log: Where it logs to.
            settings: `PENSTOCK_*` variables without the prefix, in lower case.
        """
        self.log = log
        self.health, self.metrics_port = _free_port(), _free_port()
        wanted = {
            "image": "localhost/penstock:bench",
            "namespace": NAMESPACE,
            "listen_address": "127.0.0.1",
            "health_port": str(self.health),
            "metrics_port": str(self.metrics_port),
            "log_format": "json",
            **settings,
        }
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        environment |= {f"PENSTOCK_{name.upper()}": value for name, value in wanted.items()}
        environment |= {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(REPOSITORY / "operator")}
        self.started = time.time()
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                # It ends with the bench, even when that is killed.
                ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", "penstock", "operator"],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.pid = self._process.pid

    def until_ready(self) -> Operator:
        """Wait for `/readyz`.

        Raises:
            BenchError: It has ended, or takes too long.
        """

        def ready() -> bool:
            if self._process.poll() is not None:
                raise BenchError(f"the operator ended: {self.log.read_text()[-2000:]}")
            return self.answers("/readyz")

        wait_for(ready, "ready operator", seconds=READY_SECONDS)
        return self

    def answers(self, path: str) -> bool:
        """Tell whether the health port answers 200."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}{path}", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def cpu_seconds(self) -> float:
        """Return the CPU time it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS

    def peak_mebibytes(self) -> float:
        """Return the most memory it has had resident."""
        return self._status("VmHWM")

    def resident_mebibytes(self) -> float:
        """Return the memory it has resident."""
        return self._status("VmRSS")

    def _status(self, name: str) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
        raise BenchError(f"/proc/{self.pid}/status has no {name}")

    def last_words(self) -> str:
        """Return the end of its log."""
        return "\n".join(self.log.read_text().splitlines()[-LAST_LINES:])

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def ended(self, seconds: float = STOP_SECONDS) -> int:
        """Wait for its end and return its exit status."""
        return self._process.wait(timeout=seconds)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End it, by force if it does not end by itself."""
        if self.alive:
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
            try:
                self.ended()
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


@dataclass
class World:
    """What the phases work with.

    Attributes:
        plane: The control plane.
        api: An administrator's requests.
        log: The audit log.
        folder: For logs.
        kubeconfig: The operator's.
        operators: Those that were started.
    """

    plane: ControlPlane
    api: Api
    log: audit.AuditLog
    folder: Path
    kubeconfig: Path
    operators: list[Operator]

    def operator(self, *, kubeconfig: Path | None = None, **settings: str) -> Operator:
        """Start an operator; it is stopped with the world at the latest."""
        log = self.folder / f"operator-{len(self.operators)}.log"
        operator = Operator(kubeconfig or self.kubeconfig, log, **settings)
        self.operators.append(operator)
        return operator

    def writes(self, since: int, *, leases: bool = False) -> list[audit.Call]:
        """Return the operators' writes since a position of the audit log, those to Leases only if asked for."""
        found = self.log.writes(since, user=OPERATOR_USER)
        return [call for call in found if leases or call.resource != "leases"]

    def quiet_since(self, since: int, *, seconds: float, patience_seconds: float) -> float:
        """Wait until no operator has written for so long, and return when the last write was (seconds since the epoch).

        Raises:
            BenchError: They go on and on.
        """
        deadline = time.monotonic() + patience_seconds
        asked = time.time()
        while True:
            writes = self.writes(since)
            last = writes[-1].time.timestamp() if writes else asked
            left = last + seconds - time.time()
            if left <= 0:
                return last
            if time.monotonic() > deadline:
                raise BenchError(f"the operator still writes after {patience_seconds:g} s; last: {writes[-1]}")
            time.sleep(min(left, 0.5))

    def stop_operators(self) -> None:
        """End all of them."""
        while self.operators:
            self.operators.pop().stop()


@contextlib.contextmanager
def world(*, controller_manager: bool) -> Iterator[World]:
    """Yield a fresh control plane with Penstock's CRD and rights in it."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        log = folder / audit.LOG_NAME
        arguments = [*audit.server_arguments(folder / "policy.json", log), f"--service-cluster-ip-range={SERVICES}"]
        with ControlPlane(controller_manager=controller_manager, extra_arguments=arguments) as plane:
            api = Api(plane)
            install(api)
            kubeconfig = plane.kubeconfig_for(OPERATOR_USER, groups=OPERATOR_GROUPS)
            made = World(plane, api, audit.AuditLog(log), folder, kubeconfig, [])
            try:
                yield made
            except BaseException:
                for operator in made.operators:
                    say(f"the last words of {operator.log.name}:\n{operator.last_words()}")
                raise
            finally:
                made.stop_operators()
                api.close()


def install(api: Api) -> None:
    """Apply `deploy/install.yaml` without what runs as pods, and wait for the CRD."""
    for obj in yaml.safe_load_all((REPOSITORY / "deploy" / "install.yaml").read_text()):
        if obj and obj["kind"] not in NOT_INSTALLED:
            api.apply(obj)

    def established() -> bool:
        crd: Mapping[str, Any] = api.get("CustomResourceDefinition", "", "llmbackends.serving.penstock.dev") or {}
        conditions = crd.get("status", {}).get("conditions", [])
        return any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions)

    wait_for(established, "established CRD", seconds=READY_SECONDS)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
