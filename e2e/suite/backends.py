"""One LLMBackend as the suite sees it: apply, edit, wait, look at the children, ask its limiters."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kubernetes import client

GROUP, VERSION, PLURAL = "serving.penstock.dev", "v1alpha1", "llmbackends"
NAMESPACE = "default"
ADMIN_PORT = 9901
READY_TIMEOUT_SECONDS = 120
POLL_SECONDS = 0.02

SPECS: dict[str, dict[str, Any]] = {
    "LlamaCpp": {
        "engine": {"type": "LlamaCpp", "version": "b11434", "contextLength": 1024, "maxConcurrency": 8},
        "model": {"name": "smollm2-135m", "source": {"baked": {"path": "/models/smollm2.gguf"}}},
        "resources": {"requests": {"cpu": "200m", "memory": "400Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
    },
    "VLLM": {
        "engine": {
            "type": "VLLM",
            "version": "0.32.0",
            "contextLength": 1024,
            "maxConcurrency": 8,
            # 20 tokens a second: a stream lasts longer than a node drain takes to begin.
            "env": [{"name": "FAKEVLLM_STEP_SECONDS", "value": "0.05"}],
        },
        "model": {"name": "tiny-llama", "source": {"baked": {"path": "/opt/vllm/model"}}},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
    },
}
"""The smallest specs that work with the images of `e2e/images`, by engine type."""

SERVES = {"LlamaCpp": "llama_server: listening on", "VLLM": "Application startup complete"}
"""What the engine logs the moment it can answer, by engine type."""


@dataclass(kw_only=True)
class Backend:
    """A backend on the cluster; `spec` is what was last applied."""

    name: str
    engine: str
    spec: dict[str, Any]
    api: client.ApiClient

    @classmethod
    def for_engine(cls, engine: str, *, image: str, api: client.ApiClient) -> Backend:
        """Return a backend with two replicas of the engine, not applied yet."""
        spec = json.loads(json.dumps(SPECS[engine]))
        spec["engine"]["image"] = image
        spec["replicas"] = 2
        spec["drain"] = {"lameDuckSeconds": 4, "timeoutSeconds": 120}
        return cls(name=f"e2e-{engine.lower()}", engine=engine, spec=spec, api=api)

    @property
    def model(self) -> str:
        """Return the name that clients send."""
        return str(self.spec["model"]["name"])

    @property
    def url(self) -> str:
        """Return the address of the backend's Service, as a pod would use it."""
        return f"http://{self.name}.{NAMESPACE}.svc.cluster.local"

    def manifest(self) -> dict[str, Any]:
        """Return the object as a user would write it."""
        return {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "LLMBackend",
            "metadata": {"name": self.name, "namespace": NAMESPACE},
            "spec": self.spec,
        }

    def apply(self) -> None:
        """Server-side apply the manifest, as `kubectl apply --server-side` does."""
        self._objects.patch_namespaced_custom_object(
            *self._path, body=self.manifest(), field_manager="e2e", _content_type="application/apply-patch+yaml"
        )

    def read(self) -> dict[str, Any]:
        """Return the object as stored, status included."""
        found: Any = self._objects.get_namespaced_custom_object(*self._path)
        return dict(found)

    def delete(self) -> None:
        """Delete the object if it is there."""
        try:
            self._objects.delete_namespaced_custom_object(*self._path)
        except client.ApiException as error:
            if error.status != 404:
                raise

    @property
    def _objects(self) -> client.CustomObjectsApi:
        return client.CustomObjectsApi(self.api)

    @property
    def _path(self) -> tuple[str, str, str, str, str]:
        return GROUP, VERSION, NAMESPACE, PLURAL, self.name

    def wait_ready(self, *, timeout: float = READY_TIMEOUT_SECONDS) -> float:
        """Wait until Ready is True for the current generation; return the seconds it took."""

        def ready() -> bool:
            found = self.read()
            condition = conditions(found).get("Ready", {})
            current = condition.get("observedGeneration", 0) == found["metadata"]["generation"]
            return condition.get("status") == "True" and current

        return wait_until(ready, timeout=timeout, what=lambda: f"Ready; it says {conditions(self.read())}")

    def pods(self, *, running: bool = True) -> list[Any]:
        """Return the backend's pods; with `running`, without those that are being deleted."""
        found: Any = client.CoreV1Api(self.api).list_namespaced_pod(
            NAMESPACE, label_selector=f"serving.penstock.dev/backend={self.name}"
        )
        return [pod for pod in found.items if not (running and pod.metadata.deletion_timestamp)]

    def in_flight(self) -> int:
        """Return the requests in flight over all replicas, as their limiters count them."""
        return sum(limiter_state(pod)["inFlight"] for pod in self.pods() if pod.status.pod_ip)


def conditions(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return an object's conditions by type."""
    return {condition["type"]: condition for condition in found.get("status", {}).get("conditions", [])}


def limiter_state(pod: Any) -> dict[str, Any]:
    """Return what the limiter of this pod says at `/state`."""
    with urllib.request.urlopen(f"http://{pod.status.pod_ip}:{ADMIN_PORT}/state", timeout=5) as answer:
        return dict(json.load(answer))


def wait_until(holds: Callable[[], bool], *, timeout: float, what: Callable[[], str]) -> float:
    """Poll until `holds()`; return the seconds it took, or fail with what was awaited."""
    started = time.monotonic()
    while not holds():
        if time.monotonic() - started > timeout:
            msg = f"after {timeout:g} s still waiting for {what()}"
            raise AssertionError(msg)
        time.sleep(POLL_SECONDS)
    return time.monotonic() - started
