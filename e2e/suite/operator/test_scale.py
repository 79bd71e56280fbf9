"""Whoever scales a backend is followed, and nobody is fought: an autoscaler, `kubectl scale`, and a re-applied file.

The autoscaler is Kubernetes' own, on the scale subresource of the LLMBackend, fed by the real metrics-server. An idle
replica uses more than a thousandth of a core and less than a thousand of them: the target alone says which way it goes.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from e2e import metricsserver
from e2e.audit import AuditLog, Call
from e2e.suite.backends import GROUP, PLURAL, SPECS, VERSION, conditions, wait_until

pytestmark = pytest.mark.cluster

Kubectl = Callable[..., subprocess.CompletedProcess[str]]
Record = Callable[..., None]

NAMESPACE = "e2e-scale"
NAME = "scaled"
MOST_REPLICAS = 3
READY_SECONDS = 120
METRICS_SECONDS = 120
"""metrics-server measures twice before it tells, and knows a pod only some time after its start."""

SCALED_SECONDS = 120
"""The autoscaler looks every 15 s, and gives a new pod time before it believes its figures."""

QUIET_SECONDS = 20
OPERATOR = "system:serviceaccount:penstock-system:penstock-operator"
SCALER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"


class Scene:
    """One backend in a namespace of its own, and what its replicas are, wanted and there."""

    def __init__(self, api: client.ApiClient, kubectl: Kubectl, image: str) -> None:
        self.api, self.kubectl, self.image = api, kubectl, image

    def apply(self, **fields: Any) -> None:
        """Apply the file as a user does; it never says how many replicas."""
        spec = {**SPECS["VLLM"], "engine": {**SPECS["VLLM"]["engine"], "image": self.image}, **fields}
        # Scaling down is what is waited for here, not draining.
        spec["drain"] = {"lameDuckSeconds": 1, "timeoutSeconds": 5}
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "LLMBackend",
            "metadata": {"name": NAME},
            "spec": spec,
        }
        client.CustomObjectsApi(self.api).patch_namespaced_custom_object(
            GROUP,
            VERSION,
            NAMESPACE,
            PLURAL,
            NAME,
            body=body,
            field_manager="e2e",
            _content_type="application/apply-patch+yaml",
        )

    def backend(self) -> dict[str, Any]:
        found: Any = client.CustomObjectsApi(self.api).get_namespaced_custom_object(
            GROUP, VERSION, NAMESPACE, PLURAL, NAME
        )
        return dict(found)

    def deployment(self) -> Any:
        """Return the Deployment; None before there is one."""
        try:
            return client.AppsV1Api(self.api).read_namespaced_deployment(NAME, NAMESPACE)
        except client.exceptions.NotFoundException:
            return None

    def pods(self) -> set[str]:
        """Return the uids of the replicas, those on their way out left out."""
        label = f"serving.penstock.dev/backend={NAME}"
        found: Any = client.CoreV1Api(self.api).list_namespaced_pod(NAMESPACE, label_selector=label)
        return {pod.metadata.uid for pod in found.items if not pod.metadata.deletion_timestamp}

    def has(self, replicas: int) -> bool:
        """Tell whether so many replicas are wanted, by the backend and by its Deployment, and all of them serve."""
        found, deployment = self.backend(), self.deployment()
        ready = conditions(found).get("Ready", {})
        return (
            deployment is not None
            and found["spec"]["replicas"] == replicas
            and deployment.spec.replicas == replicas
            and (deployment.status.ready_replicas or 0) == len(self.pods()) == replicas
            and ready.get("status") == "True"
            and ready.get("observedGeneration") == found["metadata"]["generation"]
        )

    def wait_for(self, replicas: int, *, seconds: float = READY_SECONDS) -> float:
        return wait_until(
            lambda: self.has(replicas), timeout=seconds, what=lambda: f"{replicas} replicas; {self.said()}"
        )

    def said(self) -> str:
        found, deployment = self.backend(), self.deployment()
        asked = "nothing" if deployment is None else deployment.spec.replicas
        return f"{found['spec'].get('replicas')} wanted, {asked} asked for, {conditions(found)}"


@pytest.fixture(scope="module")
def scene(
    api: client.ApiClient, kubectl: Kubectl, engine_images: dict[str, str], new_namespace: Callable[..., str]
) -> Scene:
    new_namespace(NAMESPACE)
    one = Scene(api, kubectl, engine_images["VLLM"])
    one.apply()
    one.wait_for(1)
    return one


@pytest.fixture
def metrics(api: client.ApiClient, tmp_path: Path) -> Iterator[None]:
    node: Any = client.CoreV1Api(api).read_node("node-1")
    address = next(one.address for one in node.status.addresses if one.type == "InternalIP")
    program = Path(os.environ["PENSTOCK_E2E_METRICS_SERVER"])
    with metricsserver.running(program, api, address=address, folder=tmp_path):
        yield


def test_replicas_that_were_scaled_survive_a_file_that_leaves_them_out(scene: Scene) -> None:
    scene.kubectl("scale", f"llmbackend/{NAME}", "--replicas=2", "-n", NAMESPACE)
    scene.wait_for(2)
    generation = scene.backend()["metadata"]["generation"]
    scene.apply()
    assert scene.backend()["metadata"]["generation"] == generation
    scene.apply(limiter={"logLevel": "Debug"})
    scene.wait_for(2)
    assert scene.backend()["metadata"]["generation"] == generation + 1


def test_replicas_of_the_deployment_follow_the_backend_and_nobody_else(scene: Scene) -> None:
    scene.kubectl("scale", f"deployment/{NAME}", "--replicas=3", "-n", NAMESPACE)
    scene.wait_for(2)


def test_scaling_changes_no_pod_that_stays(scene: Scene) -> None:
    before = scene.pods()
    scene.kubectl("scale", f"llmbackend/{NAME}", "--replicas=3", "-n", NAMESPACE)
    scene.wait_for(3)
    assert before < scene.pods()
    scene.kubectl("scale", f"llmbackend/{NAME}", "--replicas=1", "-n", NAMESPACE)
    scene.wait_for(1)


@pytest.mark.usefixtures("metrics")
def test_an_autoscaler_scales_the_backend_without_a_fight(scene: Scene, audit_log: AuditLog, record: Record) -> None:
    """Up to the most and down to one: each step is one write of the scaler and one of the operator, then silence."""
    wait_until(lambda: _is_measured(scene), timeout=METRICS_SECONDS, what=lambda: "metrics of the replica")
    start = audit_log.position()
    scalers = client.AutoscalingV2Api(scene.api)
    scalers.create_namespaced_horizontal_pod_autoscaler(NAMESPACE, _autoscaler(cpu="1m"))
    up_seconds = scene.wait_for(MOST_REPLICAS, seconds=SCALED_SECONDS)
    _stays(scene, MOST_REPLICAS, audit_log)
    scene.apply(limiter={"logLevel": "Info"})
    _stays(scene, MOST_REPLICAS, audit_log)
    scalers.patch_namespaced_horizontal_pod_autoscaler(NAME, NAMESPACE, {"spec": _autoscaler(cpu="1000")["spec"]})
    down_seconds = scene.wait_for(1, seconds=SCALED_SECONDS)
    _stays(scene, 1, audit_log)
    scalers.delete_namespaced_horizontal_pod_autoscaler(NAME, NAMESPACE)

    calls = [call for call in audit_log.writes(start) if call.namespace == NAMESPACE]
    steps = [call for call in calls if call.user == SCALER and call.resource == "llmbackends/scale"]
    followed = [call for call in calls if call.user == OPERATOR and call.resource == "deployments"]
    assert 2 <= len(steps) <= MOST_REPLICAS
    assert len(followed) <= len(steps), _listed(followed)
    assert not [call for call in calls if call.user == SCALER and call.resource.startswith("deployments")]
    record("an autoscaler scales from 1 to 3 replicas that serve", round(up_seconds, 1), unit="s")
    record("an autoscaler scales from 3 replicas to 1", round(down_seconds, 1), unit="s")
    record("writes of the operator to the Deployment, per step of the autoscaler", len(followed) / len(steps))


def _autoscaler(*, cpu: str) -> Any:
    target = {"type": "AverageValue", "averageValue": cpu}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": NAME},
        "spec": {
            "scaleTargetRef": {"apiVersion": f"{GROUP}/{VERSION}", "kind": "LLMBackend", "name": NAME},
            "minReplicas": 1,
            "maxReplicas": MOST_REPLICAS,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
            # As Kubernetes does it by default, but without the five minutes that it waits before it scales down.
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    }


def _is_measured(scene: Scene) -> bool:
    answer = scene.kubectl("get", "--raw", f"/apis/metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/pods", check=False)
    return answer.returncode == 0 and NAME in answer.stdout


def _stays(scene: Scene, replicas: int, audit_log: AuditLog) -> None:
    """Watch for a while that nobody writes the number of replicas again."""
    start = audit_log.position()
    deadline = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < deadline:
        assert scene.backend()["spec"]["replicas"] == scene.deployment().spec.replicas == replicas, scene.said()
        time.sleep(1)
    calls = [call for call in audit_log.writes(start) if call.namespace == NAMESPACE]
    fought = [call for call in calls if call.resource in {"llmbackends/scale", "deployments", "deployments/scale"}]
    assert not [call for call in fought if call.user in {OPERATOR, SCALER}], _listed(fought)


def _listed(calls: list[Call]) -> str:
    return "; ".join(f"{call.time:%H:%M:%S} {call.user} {call.verb} {call.resource}" for call in calls)
