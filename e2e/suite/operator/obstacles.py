"""What can keep a backend from serving, as steps on a cluster that put it there or take it away."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kubernetes import client

from e2e.suite.backends import GROUP, PLURAL, SPECS, VERSION, conditions

NODE_LABEL = "e2e.example/truth"
ACCELERATOR = "nvidia.com/gpu"
POD_SECURITY = "pod-security.kubernetes.io/enforce"
PAUSE_IMAGE = "localhost/pause:e2e"
NAME = VOLUME = "truth"

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Scene:
    """The place of one case: a namespace with one backend."""

    api: client.ApiClient
    kubectl: Kubectl
    namespace: str
    image: str
    nodes: tuple[str, ...]

    def apply(self, spec: Mapping[str, Any]) -> None:
        """Apply the backend: the smallest that works, with these fields laid over it."""
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "LLMBackend",
            "metadata": {"name": NAME},
            "spec": merged(SPECS["VLLM"], {"engine": {"image": self.image}}, spec),
        }
        self.put(body)

    def put(self, *manifests: Mapping[str, Any]) -> None:
        """Apply manifests in the namespace; cluster-scoped ones just as well."""
        text = "\n---\n".join(json.dumps(manifest) for manifest in manifests)
        self.kubectl("-n", self.namespace, "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def run(self, *arguments: str) -> str:
        """Run kubectl in the namespace."""
        return self.kubectl("-n", self.namespace, *arguments).stdout

    def ready(self) -> dict[str, Any]:
        """Return the backend's condition Ready, empty before there is one."""
        objects = client.CustomObjectsApi(self.api)
        found: Any = objects.get_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, NAME)
        return conditions(dict(found)).get("Ready", {})


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Lay maps over each other, the later ones on top."""
    result: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            below = result.get(name)
            result[name] = merged(below, value) if isinstance(value, Mapping) and isinstance(below, dict) else value
    return result


def nothing(_scene: Scene) -> None:
    """Leave all as it is: the spec itself is what stands in the way."""


def step(*arguments: str) -> Callable[[Scene], None]:
    """Return the step that runs kubectl; `NODE` and `NAMESPACE` stand for the scene's."""

    def run(scene: Scene) -> None:
        places = {"NODE": scene.nodes[0], "NAMESPACE": scene.namespace}
        scene.run(*(places.get(argument, argument) for argument in arguments))

    return run


def quota(resource: str, count: int) -> Callable[[Scene], None]:
    """Return the step that sets the namespace's ResourceQuota, and waits until it is in force."""

    def put(scene: Scene) -> None:
        hard = {"hard": {resource: str(count)}}
        scene.put({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": hard})
        path = resource.replace(".", "\\.")
        scene.run("wait", "resourcequota/q", f"--for=jsonpath={{.status.hard.{path}}}={count}", "--timeout=30s")

    return put


def limit_range(scene: Scene) -> None:
    """Allow containers less memory than the engine has."""
    limits = [{"type": "Container", "max": {"memory": "300Mi"}}]
    scene.put({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}, "spec": {"limits": limits}})


def occupy(scene: Scene) -> None:
    """Reserve most of each node's memory, and wait until it is reserved."""
    for node in scene.nodes:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"occupant-{node}"},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": node},
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "pause", "image": PAUSE_IMAGE, "resources": share(scene, node, percent=55)}],
            },
        }
        scene.put(body)
    scene.run("wait", "pods", "--all", "--for=condition=PodScheduled", "--timeout=30s")


def share(scene: Scene, node: str, *, percent: int) -> dict[str, Any]:
    """Return a request for this share of a node's memory."""
    found: Any = client.CoreV1Api(scene.api).read_node(node)
    kibibytes = int(found.status.allocatable["memory"].removesuffix("Ki"))
    return {"requests": {"memory": f"{kibibytes * percent // 100}Ki"}}


def accelerators(operation: dict[str, str]) -> Callable[[Scene], None]:
    """Return the step that changes what accelerators the first node says it has, as a device plugin would."""
    name = ACCELERATOR.replace("/", "~1")
    patch = json.dumps([operation | {"path": f"/status/{field}/{name}"} for field in ("capacity", "allocatable")])
    return step("patch", "node", "NODE", "--subresource=status", "--type=json", "-p", patch)


_SHARED = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}


def volume(scene: Scene) -> None:
    """Make the volume of a claim that is missing."""
    spec = _SHARED | {"capacity": {"storage": "1Mi"}, "hostPath": {"path": "/tmp"}}
    scene.put({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": VOLUME}, "spec": spec})


def claim(scene: Scene) -> None:
    """Make the claim that was missing, and wait until it is bound.

    The volume controller may need its next round for that, up to 15 seconds later; until then no pod can have it.
    """
    spec = _SHARED | {"resources": {"requests": {"storage": "1Mi"}}, "volumeName": VOLUME}
    scene.put({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "later"}, "spec": spec})
    scene.run("wait", "persistentvolumeclaim", "later", "--for=jsonpath={.status.phase}=Bound", "--timeout=60s")
