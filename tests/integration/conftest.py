"""A real API server with a real controller manager, Penstock installed in it, and an operator that runs as in a pod.

The operator is its own process, started by its command line, and authenticates as the ServiceAccount of
`deploy/install.yaml`: whatever it does here, the installation's RBAC rules allow. There is no scheduler and no kubelet;
pods exist, and tests write their status.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.beside import installation
from e2e.beside.administrator import Administrator, Object
from e2e.beside.installation import OPERATOR_GROUPS, OPERATOR_USER
from e2e.beside.operatorprocess import OperatorProcess
from e2e.beside.waiting import wait_for
from e2e.cluster.controlplane import ControlPlane

RESYNC_SECONDS = 0.5

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


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane(controller_manager=True) as running:
        yield running


@pytest.fixture(scope="session")
def api(plane: ControlPlane) -> Iterator[Administrator]:
    client = Administrator(plane)
    yield client
    client.close()


def install(api: Administrator) -> None:
    """Install Penstock, with the right to other Leases besides: operators of different tests run side by side."""
    installation.install(api)
    api.apply(ANY_LEASE)
    api.apply(MAY_HOLD_ANY_LEASE)


@pytest.fixture(scope="session")
def installed(api: Administrator) -> None:
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
        number = len(started)
        # Operators of different tests run side by side and must not wait for each other.
        settings = {"resync_seconds": str(RESYNC_SECONDS), "lease_name": f"operator-{number}"}
        process = OperatorProcess(kubeconfig, logs / f"{number}.log", *flags, **settings)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


@pytest.fixture(scope="module")
def operator(start_operator: Callable[..., OperatorProcess]) -> Iterator[OperatorProcess]:
    """The operator that serves all namespaces; it ends with its module, so others have the cluster to themselves."""
    process = start_operator().until_ready()
    yield process
    process.stop()


@pytest.fixture
def namespace(api: Administrator, request: pytest.FixtureRequest) -> str:
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
def make_api_fixture() -> Callable[[ControlPlane], Administrator]:
    return Administrator


@pytest.fixture(scope="session", name="install")
def install_fixture() -> Callable[[Administrator], None]:
    return install
