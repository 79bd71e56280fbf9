"""A real API server with a real controller manager, Penstock installed in it, and an operator that runs as in a pod.

The operator is its own process, started by its command line, and authenticates as the ServiceAccount of
`deploy/install.yaml`: whatever it does here, the installation's RBAC rules allow. There is no scheduler and no kubelet;
pods exist, and tests write their status.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from e2e.cluster.controlplane import ControlPlane

REPOSITORY = Path(__file__).parents[2]
OPERATOR_USER = "system:serviceaccount:penstock-system:penstock-operator"
OPERATOR_GROUPS = ("system:serviceaccounts", "system:serviceaccounts:penstock-system", "system:authenticated")
RESYNC_SECONDS = 0.5
WAIT_SECONDS = 60
"""Long enough for a busy machine: starting the operator alone takes a second of CPU time."""

Object = dict[str, Any]

PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "Service": "/api/v1/namespaces/{}/services",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "PodMonitor": "/apis/monitoring.coreos.com/v1/namespaces/{}/podmonitors",
    "ControllerRevision": "/apis/apps/v1/namespaces/{}/controllerrevisions",
    "Event": "/api/v1/namespaces/{}/events",
    "ResourceQuota": "/api/v1/namespaces/{}/resourcequotas",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "LLMBackend": "/apis/serving.penstock.dev/v1alpha1/namespaces/{}/llmbackends",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}


ANY_LEASE: Object = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "Role",
    "metadata": {"name": "any-lease", "namespace": "penstock-system"},
    "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get", "update"]}],
}
MAY_HOLD_ANY_LEASE: Object = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "any-lease", "namespace": "penstock-system"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "any-lease"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": OPERATOR_USER}],
}


def wait_for(probe: Callable[[], Any], what: str, *, seconds: float = WAIT_SECONDS) -> Any:
    """Return the probe's first true value; the failure says what was waited for and what was seen last."""
    deadline = time.monotonic() + seconds
    while not (value := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"no {what} within {seconds} s")
        time.sleep(0.01)
    return value


class Api:
    """What a user does with kubectl, over plain HTTP and independent of Penstock's own client."""

    def __init__(self, plane: ControlPlane) -> None:
        self._server = plane.server
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.cert = (str(plane.certificate.certificate), str(plane.certificate.key))
        self._session.verify = str(plane.authority.certificate)

    def close(self) -> None:
        self._session.close()

    def request(self, method: str, path: str, **kwargs: Any) -> requests.Response:
        return self._session.request(method, self._server + path, timeout=20, **kwargs)

    def path(self, kind: str, namespace: str = "", name: str = "") -> str:
        return PATHS[kind].format(namespace) + (f"/{name}" if name else "")

    def apply(self, obj: Object) -> Object:
        path = self.path(obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        answer = self.request(
            "PATCH",
            path,
            params={"fieldManager": "kubectl", "force": "true"},
            headers={"Content-Type": "application/apply-patch+yaml"},
            data=json.dumps(obj),
        )
        assert answer.ok, answer.text
        return answer.json()

    def patch(self, kind: str, namespace: str, name: str, patch: Object, *, subresource: str = "") -> Object:
        answer = self.request(
            "PATCH",
            self.path(kind, namespace, name) + (f"/{subresource}" if subresource else ""),
            params={"fieldManager": "somebody"},
            headers={"Content-Type": "application/merge-patch+json"},
            data=json.dumps(patch),
        )
        assert answer.ok, answer.text
        return answer.json()

    def create(self, obj: Object) -> Object:
        answer = self.request("POST", self.path(obj["kind"], obj["metadata"].get("namespace", "")), json=obj)
        assert answer.ok, answer.text
        return answer.json()

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        answer = self.request("GET", self.path(kind, namespace, name))
        if answer.status_code == 404:
            return None
        assert answer.ok, answer.text
        return answer.json()

    def list(self, kind: str, namespace: str = "") -> list[Object]:
        answer = self.request("GET", self.path(kind, namespace))
        assert answer.ok, answer.text
        return answer.json()["items"]

    def delete(self, kind: str, namespace: str, name: str) -> None:
        answer = self.request("DELETE", self.path(kind, namespace, name))
        assert answer.ok, answer.text


class OperatorProcess:
    """`penstock operator` as its own process."""

    def __init__(self, kubeconfig: Path, log: Path, *flags: str) -> None:
        self.log = log
        self.health, self.metrics = _free_port(), _free_port()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        environment |= {
            "KUBECONFIG": str(kubeconfig),
            "PYTHONPATH": str(REPOSITORY / "operator"),
            "PYTHONWARNINGS": "error::ResourceWarning",
            "PENSTOCK_IMAGE": "localhost/penstock:test",
            "PENSTOCK_LISTEN_ADDRESS": "127.0.0.1",
            "PENSTOCK_HEALTH_PORT": str(self.health),
            "PENSTOCK_METRICS_PORT": str(self.metrics),
            "PENSTOCK_RESYNC_SECONDS": str(RESYNC_SECONDS),
            # Operators of different tests run side by side and must not wait for each other.
            "PENSTOCK_LEASE_NAME": f"operator-{self.health}",
        }
        with log.open("w") as output:
            self.process = subprocess.Popen(
                # It ends with the tests, even when they are killed.
                ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", "penstock", "operator", *flags],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def until_ready(self) -> "OperatorProcess":
        wait_for(lambda: self.is_ready() or self._ended(), "ready operator")
        return self

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/readyz", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def leads(self) -> bool:
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

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """Wait for the end and return the exit status."""
        return self.process.wait(timeout=WAIT_SECONDS)

    def text(self) -> str:
        return self.log.read_text()

    def _ended(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"the operator ended with {self.process.returncode}: {self.text()}")
        return False


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane(controller_manager=True) as running:
        yield running


@pytest.fixture(scope="session")
def api(plane: ControlPlane) -> Iterator[Api]:
    client = Api(plane)
    yield client
    client.close()


def install(api: Api) -> None:
    """Apply everything in deploy/install.yaml except the operator itself, which runs beside the API server here."""
    for obj in yaml.safe_load_all((REPOSITORY / "deploy" / "install.yaml").read_text()):
        if obj["kind"] not in ("Deployment", "Service", "PodDisruptionBudget"):
            api.apply(obj)
    api.apply(ANY_LEASE)
    api.apply(MAY_HOLD_ANY_LEASE)

    def established() -> bool:
        crd = api.get("CustomResourceDefinition", "", "llmbackends.serving.penstock.dev")
        conditions = (crd or {}).get("status", {}).get("conditions", [])
        return any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions)

    wait_for(established, "established CRD")


@pytest.fixture(scope="session")
def installed(api: Api) -> None:
    install(api)


@pytest.fixture(scope="session")
def operator_kubeconfig(plane: ControlPlane, installed: None) -> Path:
    return plane.kubeconfig_for(OPERATOR_USER, groups=OPERATOR_GROUPS)


@pytest.fixture(scope="session")
def start_operator(
    operator_kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., OperatorProcess]]:
    """Start operators that are gone at the end of the session, whatever happens."""
    logs = tmp_path_factory.mktemp("operators")
    started: list[OperatorProcess] = []

    def start(*flags: str, kubeconfig: Path = operator_kubeconfig) -> OperatorProcess:
        process = OperatorProcess(kubeconfig, logs / f"{len(started)}.log", *flags)
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.process.kill()
        process.process.wait()


@pytest.fixture(scope="module")
def operator(start_operator: Callable[..., OperatorProcess]) -> Iterator[OperatorProcess]:
    """The operator that serves all namespaces; it ends with its module, so others have the cluster to themselves."""
    process = start_operator().until_ready()
    yield process
    process.stop()


@pytest.fixture
def namespace(api: Api, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own that enforces the strictest Pod Security level."""
    name = request.node.name.partition("[")[0].removeprefix("test_").replace("_", "-")[:40].strip("-")
    name = f"{name}-{time.monotonic_ns() % 10**6}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    wait_for(lambda: api.get("ServiceAccount", name, "default"), "default service account")
    return name


def make_backend(namespace: str, name: str = "smol", **spec: Any) -> Object:
    return {
        "apiVersion": "serving.penstock.dev/v1alpha1",
        "kind": "LLMBackend",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "engine": {"type": "LlamaCpp", "image": "localhost/llamacpp:test"},
            "model": {"name": "smollm2", "source": {"baked": {"path": "/models/smollm2.gguf"}}},
            **spec,
        },
    }


# Test modules are imported by path and cannot import this one, so what they call comes as fixtures.


@pytest.fixture(scope="session", name="make_backend")
def make_backend_fixture() -> Callable[..., Object]:
    return make_backend


@pytest.fixture(scope="session", name="wait_for")
def wait_for_fixture() -> Callable[..., Any]:
    return wait_for


@pytest.fixture(scope="session", name="make_api")
def make_api_fixture() -> Callable[[ControlPlane], Api]:
    return Api


@pytest.fixture(scope="session", name="install")
def install_fixture() -> Callable[[Api], None]:
    return install
