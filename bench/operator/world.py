"""A control plane with Penstock installed, operators beside it, and an audit log that saw every write.

Operators are processes of their own, started by their command line, and authenticate as the ServiceAccount of the
installation, so they have its rights and no others. Nothing schedules pods and no kubelet runs them: what is measured
is the operator and the API server, on the same cores.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from e2e import audit
from e2e.beside import installation
from e2e.beside.administrator import Administrator
from e2e.beside.installation import NAMESPACE, OPERATOR_GROUPS, OPERATOR_USER
from e2e.beside.operatorprocess import OperatorProcess
from e2e.beside.waiting import NotInTime
from e2e.cache import say
from e2e.cluster.controlplane import ControlPlane

STOP_SECONDS = 20
SERVICES = "198.19.0.0/16"  # room for the Services of the largest fleet, twice


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
    api: Administrator
    log: audit.AuditLog
    folder: Path
    kubeconfig: Path
    operators: list[OperatorProcess]

    def operator(self, *, kubeconfig: Path | None = None, **settings: str) -> OperatorProcess:
        """Start an operator; it is stopped with the world at the latest."""
        log = self.folder / f"operator-{len(self.operators)}.log"
        settings = {"namespace": NAMESPACE, "log_format": "json", **settings}
        operator = OperatorProcess(kubeconfig or self.kubeconfig, log, **settings)
        self.operators.append(operator)
        return operator

    def writes(self, since: int, *, leases: bool = False) -> list[audit.Call]:
        """Return the operators' writes since a position of the audit log, those to Leases only if asked for."""
        return [call for call in self.log.calls(since) if is_write_of_operator(call, leases=leases)]

    def quiet_since(self, since: int, *, seconds: float, patience_seconds: float) -> float:
        """Wait until no operator has written for so long, and return when the last write was (seconds since the epoch).

        Raises:
            NotInTime: They go on and on.
        """
        deadline = time.monotonic() + patience_seconds
        last, last_write = time.time(), None
        while True:
            # Each line is read once: the benches share two cores with what they measure.
            calls, since = self.log.latest(since)
            for call in calls:
                if is_write_of_operator(call):
                    last, last_write = call.time.timestamp(), call
            left = last + seconds - time.time()
            if left <= 0:
                return last
            if time.monotonic() > deadline:
                raise NotInTime(f"the operator still writes after {patience_seconds:g} s; last: {last_write}")
            time.sleep(min(left, 0.5))

    def stop_operators(self) -> None:
        """End all of them, by force those that do not end by themselves."""
        while self.operators:
            end(self.operators.pop())


def is_write_of_operator(call: audit.Call, *, leases: bool = False) -> bool:
    """Tell whether a call is a write of an operator, one to its Lease only if asked for."""
    return call.user == OPERATOR_USER and call.verb in audit.WRITES and (leases or call.resource != "leases")


def end(operator: OperatorProcess) -> None:
    """End an operator, by force if it does not end by itself."""
    if operator.alive:
        operator.process.send_signal(signal.SIGCONT)
        operator.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            operator.ended(STOP_SECONDS)
    operator.kill()


@contextlib.contextmanager
def world(*, controller_manager: bool) -> Iterator[World]:
    """Yield a fresh control plane with Penstock's CRD and rights in it."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        log = folder / audit.LOG_NAME
        arguments = [*audit.server_arguments(folder / "policy.json", log), f"--service-cluster-ip-range={SERVICES}"]
        with ControlPlane(controller_manager=controller_manager, extra_arguments=arguments) as plane:
            api = Administrator(plane)
            installation.install(api)
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
