"""The operator's two replicas: one leads, and whatever happens to it, the other goes on and nobody writes twice.

Killed, stopped and continued are the operator's real processes, under kubelet; what each of them wrote is read from the
audit log, where a token of a pod carries the pod's name.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from e2e.audit import WRITES, AuditLog
from e2e.suite.backends import GROUP, PLURAL, SPECS, VERSION, conditions, wait_until
from penstock.runtime.settings import OperatorSettings

pytestmark = pytest.mark.cluster

Kubectl = Callable[..., subprocess.CompletedProcess[str]]
Record = Callable[..., None]

OPERATOR_NAMESPACE = "penstock-system"
DEPLOYMENT = "penstock-operator"
LEASE = str(OperatorSettings.model_fields["lease_name"].default)
TAKEOVER_SECONDS = 20
STOPPED_SECONDS = 30
PAUSED_SECONDS = 60
SETTLE_SECONDS = 90
POD_NAME = "authentication.kubernetes.io/pod-name"
"""Where an audit entry names the pod that a token belongs to."""


class Scene:
    """The operator's replicas and a namespace with backends that ask for no pods."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self._objects = client.CustomObjectsApi(api)
        self._apps = client.AppsV1Api(api)
        self._core = client.CoreV1Api(api)
        self._leases = client.CoordinationV1Api(api)

    def apply(self, name: str) -> None:
        """Apply a backend that is scaled to nothing: its children are what counts here."""
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "LLMBackend",
            "metadata": {"name": name},
            "spec": {**SPECS["VLLM"], "replicas": 0},
        }
        self._objects.patch_namespaced_custom_object(
            GROUP,
            VERSION,
            self.namespace,
            PLURAL,
            name,
            body,
            field_manager="e2e",
            force=True,
            _content_type="application/apply-patch+yaml",
        )

    def ready(self, name: str) -> bool:
        """Tell whether the backend's spec is rolled out."""
        found: Any = self._objects.get_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name)
        return bool(conditions(found).get("Ready", {}).get("status") == "True")

    def leader(self) -> str:
        """Return the name of the pod that holds the Lease; empty when none does."""
        lease: Any = self._leases.read_namespaced_lease(LEASE, OPERATOR_NAMESPACE)
        return str(lease.spec.holder_identity or "").partition("_")[0]

    def deployments(self) -> int:
        """Return how many Deployments there are."""
        return len(self._apps.list_namespaced_deployment(self.namespace).items)

    def available(self) -> bool:
        """Tell whether both replicas of the operator are ready."""
        found: Any = self._apps.read_namespaced_deployment(DEPLOYMENT, OPERATOR_NAMESPACE)
        return bool(found.status.available_replicas == found.spec.replicas == 2)

    def settle(self) -> str:
        """Wait until both replicas are ready and one leads; return its pod's name."""
        wait_until(self.available, timeout=SETTLE_SECONDS, what=lambda: "two ready replicas of the operator")
        wait_until(lambda: bool(self.leader()), timeout=SETTLE_SECONDS, what=lambda: "a leader")
        return self.leader()


@pytest.fixture
def scene(api: client.ApiClient, new_namespace: Callable[..., str], request: pytest.FixtureRequest) -> Scene:
    """Return a scene in a namespace of the test's own, with both replicas up."""
    name = request.node.name.removeprefix("test_").replace("_", "-")[:40].strip("-")
    found = Scene(api, new_namespace(f"e2e-{name}"))
    found.settle()
    return found


def process_of(pod: str) -> int:
    """Return the pid of the operator in a pod: kubelet names a container's host after its pod."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().split(b"\0")
            if f"HOSTNAME={pod}".encode() in environment and b"operator" in command:
                return int(folder.name)
    pytest.fail(f"no process of the pod {pod} is to be seen")


def process_named(program: str) -> int:
    """Return the pid of a program of the control plane."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if Path((folder / "cmdline").read_text().partition("\0")[0]).name == program:
                return int(folder.name)
    pytest.fail(f"no process {program} is to be seen")


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process for a while."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def writes_of(log: AuditLog, pod: str, since: int) -> list[str]:
    """Return what a pod wrote since a position in the log, the Lease apart."""
    with log.path.open("rb") as file:
        file.seek(since)
        entries = [json.loads(line) for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
    return [
        f"{entry['verb']} {entry['requestURI']}"
        for entry in entries
        if entry["verb"] in WRITES
        and pod in entry["user"].get("extra", {}).get(POD_NAME, ())
        and entry.get("objectRef", {}).get("resource") != "leases"
    ]


def test_a_killed_leader_is_followed_within_20_seconds(scene: Scene, record: Record) -> None:
    leader = scene.leader()
    os.kill(process_of(leader), signal.SIGKILL)
    killed = time.monotonic()
    scene.apply("after-kill")
    wait_until(lambda: scene.ready("after-kill"), timeout=60, what=lambda: "a backend that is served after the kill")
    seconds = time.monotonic() - killed
    holds = seconds < TAKEOVER_SECONDS
    record("from SIGKILL of the leader to a served backend", seconds, unit="s", bar="< 20 s", holds=holds)
    assert holds
    scene.settle()


def test_a_stopped_leader_writes_nothing_when_it_goes_on(
    scene: Scene, kubectl: Kubectl, audit_log: AuditLog, record: Record
) -> None:
    leader, names = scene.leader(), [f"b{number}" for number in range(40)]
    for name in names:
        scene.apply(name)
    # It is in the middle of this: some of its requests are under way, others wait inside of it.
    wait_until(lambda: scene.deployments() > 0, timeout=60, what=lambda: "the first Deployment")
    with stopped(process_of(leader)):
        resumes = time.monotonic() + STOPPED_SECONDS
        wait_until(lambda: scene.leader() != leader, timeout=STOPPED_SECONDS, what=lambda: "another leader")
        wait_until(lambda: all(map(scene.ready, names)), timeout=60, what=lambda: "all backends")
        time.sleep(max(0.0, resumes - time.monotonic()))
        position = audit_log.position()
    time.sleep(5)
    late = writes_of(audit_log, leader, position)
    record("writes of a leader that was stopped for 30 s", len(late), bar="0", holds=not late)
    assert late == []
    # It has ended, so that kubelet starts it anew.
    said = kubectl("-n", OPERATOR_NAMESPACE, "logs", leader, "--previous").stdout
    assert "Lease" in said.strip().splitlines()[-1]
    scene.settle()


def test_a_namespace_deleted_in_the_middle_of_work_goes(scene: Scene, kubectl: Kubectl, audit_log: AuditLog) -> None:
    start = audit_log.position()
    kubectl("create", "namespace", "e2e-short-lived")
    inner = Scene(scene.api, "e2e-short-lived")
    for number in range(20):
        inner.apply(f"b{number}")
    kubectl("delete", "namespace", "e2e-short-lived", "--timeout=60s")
    scene.apply("bystander")
    wait_until(lambda: scene.ready("bystander"), timeout=60, what=lambda: "a backend elsewhere")
    time.sleep(2)
    end = audit_log.position()
    time.sleep(10)
    user = f"system:serviceaccount:{OPERATOR_NAMESPACE}:{DEPLOYMENT}"
    late = [call for call in audit_log.writes(end, user=user) if call.namespace == "e2e-short-lived"]
    assert late == []
    # Each backend has about ten children; a refused one is tried again with growing delays, not in a circle.
    tried = [call for call in audit_log.writes(start, user=user) if call.namespace == "e2e-short-lived"]
    assert len(tried) < 20 * 30


def test_an_api_server_that_was_away_for_a_minute_is_worked_with_again(scene: Scene, record: Record) -> None:
    scene.apply("before")
    wait_until(lambda: scene.ready("before"), timeout=60, what=lambda: "a backend before the pause")
    with stopped(process_named("kube-apiserver")):
        time.sleep(PAUSED_SECONDS)
    resumed = time.monotonic()

    def answers() -> bool:
        with contextlib.suppress(client.ApiException, OSError):
            scene.apply("after")
            return True
        return False

    wait_until(answers, timeout=60, what=lambda: "the API server")
    wait_until(lambda: scene.ready("after"), timeout=SETTLE_SECONDS, what=lambda: "a backend after the pause")
    record("from the end of a pause of the API server to a served backend", time.monotonic() - resumed, unit="s")
    scene.settle()
