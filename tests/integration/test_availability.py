"""Two operators, of which one leads, and an API server that goes away: what is written by whom, and when."""

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
import requests

from e2e import audit
from e2e.audit import AuditLog
from e2e.cluster.controlplane import ControlPlane

pytestmark = pytest.mark.integration

TIMES = ("--lease-duration-seconds", "10", "--lease-renew-deadline-seconds", "8", "--lease-retry-seconds", "0.5")
RENEW_DEADLINE_SECONDS = 8
ADMINISTRATORS = ("system:masters",)


@pytest.fixture
def start_pair(start_operator, namespace, plane):
    """Start two replicas of one installation that serves the test's own namespace."""

    def start(*flags):
        shared = ("--namespace", namespace, "--watch-namespaces", namespace, "--lease-name", "shared")
        return [start_operator(*shared, *TIMES, *flags, kubeconfig=plane.kubeconfig).until_ready() for _ in range(2)]

    return start


def leader_and_other(pair, wait_for):
    wait_for(lambda: any(operator.leads() for operator in pair), "leader")
    return sorted(pair, key=lambda operator: not operator.leads())


def served(api, namespace, name):
    return lambda: (api.get("LLMBackend", namespace, name) or {}).get("status", {}).get("conditions")


def test_both_are_ready_and_one_leads(api, start_pair, namespace, make_backend, wait_for):
    leader, other = leader_and_other(start_pair(), wait_for)
    api.apply(make_backend(namespace))
    wait_for(lambda: api.get("Deployment", namespace, "smol"), "Deployment")
    time.sleep(2)
    assert (leader.leads(), other.leads()) == (True, False)
    assert leader.is_ready()
    assert other.is_ready()
    assert other.metric("penstock_operator_backends") == 1
    writes = ("apply", "patch", "patch_status", "delete")
    assert sum(other.metric("penstock_operator_api_requests_total", verb=verb) for verb in writes) == 0
    for operator in (leader, other):
        assert operator.stop() == 0


def test_a_leader_that_ends_hands_over_at_once(api, start_pair, namespace, make_backend, wait_for):
    leader, other = leader_and_other(start_pair(), wait_for)
    assert leader.stop() == 0
    assert api.get("Lease", namespace, "shared")["spec"]["holderIdentity"] in ("", holder(api, namespace))
    ended = time.monotonic()
    wait_for(other.leads, "second leader")
    # Without the release the Lease would have lasted for seconds more.
    print(f"handed over within {time.monotonic() - ended:.2f} s")
    api.apply(make_backend(namespace))
    wait_for(served(api, namespace, "smol"), "status")
    assert api.get("Lease", namespace, "shared")["spec"]["leaseTransitions"] >= 1


def holder(api, namespace):
    return api.get("Lease", namespace, "shared")["spec"]["holderIdentity"]


def test_a_leader_that_is_killed_is_followed_by_the_other(api, start_pair, namespace, make_backend, wait_for):
    leader, other = leader_and_other(start_pair(), wait_for)
    leader.stop(signal.SIGKILL)
    api.apply(make_backend(namespace))
    wait_for(other.leads, "second leader")
    wait_for(served(api, namespace, "smol"), "status")


def test_pod_monitors_are_made_when_their_kind_appears_and_forgotten_when_it_goes(
    api, start_operator, namespace, make_backend, wait_for
):
    flags = ("--watch-namespaces", namespace, "--discovery-seconds", "0.5")
    operator = start_operator(*flags).until_ready()
    api.apply(make_backend(namespace))
    wait_for(lambda: api.get("Deployment", namespace, "smol"), "Deployment")
    api.apply(pod_monitor_crd())
    try:
        wait_for(lambda: crd_served(api) and api.list("PodMonitor", namespace), "PodMonitor")
        (monitor,) = api.list("PodMonitor", namespace)
        name = monitor["metadata"]["name"]
        api.delete("PodMonitor", namespace, name)
        wait_for(lambda: api.get("PodMonitor", namespace, name), "repaired PodMonitor")
    finally:
        api.delete("CustomResourceDefinition", "", "podmonitors.monitoring.coreos.com")
    wait_for(lambda: "no PodMonitors are served" in operator.text().partition("PodMonitors are served")[2], "notice")
    api.patch("LLMBackend", namespace, "smol", {"spec": {"replicas": 2}})
    wait_for(lambda: api.get("Deployment", namespace, "smol")["spec"]["replicas"] == 2, "replicas")
    assert operator.stop() == 0
    assert "Traceback" not in operator.text()


def crd_served(api):
    return api.request("GET", "/apis/monitoring.coreos.com/v1").ok


def pod_monitor_crd():
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "podmonitors.monitoring.coreos.com",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": "monitoring.coreos.com",
            "names": {"kind": "PodMonitor", "listKind": "PodMonitorList", "plural": "podmonitors"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory):
    return AuditLog(tmp_path_factory.mktemp("audit") / audit.LOG_NAME)


@pytest.fixture(scope="module")
def fragile(audit_log):
    """A control plane of this module's own: its programs are stopped, its store is compacted, its calls are logged."""
    arguments = audit.server_arguments(audit_log.path.with_name("policy.json"), audit_log.path)
    with ControlPlane(extra_arguments=arguments) as running:
        yield running


@pytest.fixture(scope="module")
def fragile_api(fragile, make_api, install):
    api = make_api(fragile)
    install(api)
    yield api
    api.close()


def part_of(plane, name):
    return next(part for part in plane._parts if part.name == name)


def command_of(part):
    return Path(f"/proc/{part.pid}/cmdline").read_text().rstrip("\0").split("\0")


@contextlib.contextmanager
def stopped(plane, name):
    """Stop a program of the control plane for a while."""
    part = part_of(plane, name)
    os.kill(part.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(part.pid, signal.SIGCONT)


def restart(plane, name):
    """Kill a program of the control plane and start it again as it was."""
    part = part_of(plane, name)
    command = command_of(part)
    part.stop(grace_seconds=0)
    plane._parts.remove(part)
    plane._run(name, *command)


def compact(plane):
    """Drop the store's history, so that no watch can be resumed from before."""
    prefix = "--listen-client-urls="
    url = next(word.removeprefix(prefix) for word in command_of(part_of(plane, "etcd")) if word.startswith(prefix))
    with requests.Session() as session:
        session.trust_env = False
        session.cert = (str(plane.certificate.certificate), str(plane.certificate.key))
        session.verify = str(plane.authority.certificate)
        header = session.post(f"{url}/v3/kv/range", json={"key": "AA=="}, timeout=20).json()["header"]
        answer = session.post(f"{url}/v3/kv/compaction", json={"revision": header["revision"]}, timeout=20)
        assert answer.ok, answer.text


def answers(api):
    try:
        return api.request("GET", "/readyz").ok
    except requests.RequestException:
        return False


def new_namespace(api, name):
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def test_a_leader_that_was_stopped_writes_nothing_when_it_goes_on(
    fragile, fragile_api, audit_log, start_operator, make_backend, wait_for
):
    """It is stopped in the middle of work on many backends, with requests waiting inside of it."""
    api, namespace = fragile_api, new_namespace(fragile_api, "stopped")
    flags = ("--namespace", namespace, "--watch-namespaces", namespace, "--lease-name", "shared", *TIMES)
    # Two users, so that the audit log tells them apart.
    pair = {
        user: start_operator(
            *flags, "--write-rate", "20", kubeconfig=fragile.kubeconfig_for(user, groups=ADMINISTRATORS)
        )
        for user in ("first", "second")
    }
    wait_for(lambda: all(operator.is_ready() for operator in pair.values()), "two ready operators")
    leader, other = leader_and_other(pair.values(), wait_for)
    (user,) = (user for user, operator in pair.items() if operator is leader)
    for number in range(20):
        api.apply(make_backend(namespace, name=f"b{number}"))
    wait_for(lambda: api.list("Deployment", namespace), "first Deployment")
    assert len(api.list("Deployment", namespace)) < 20
    os.kill(leader.process.pid, signal.SIGSTOP)
    wait_for(other.leads, "second leader")
    wait_for(lambda: len(api.list("Deployment", namespace)) == 20, "all Deployments")
    position = audit_log.position()
    os.kill(leader.process.pid, signal.SIGCONT)
    assert leader.ended() == 1
    assert [call for call in audit_log.writes(position, user=user) if call.resource != "leases"] == []
    last = leader.text().strip().splitlines()[-1]
    assert last.startswith("penstock operator: ")
    assert "Lease" in last
    assert "Traceback" not in leader.text()


def test_a_paused_api_server_ends_the_leader_and_the_next_one_goes_on(
    fragile, fragile_api, start_operator, make_backend, wait_for
):
    """As in a pod: the process that has lost the Lease ends, and kubelet starts it again."""
    api, namespace = fragile_api, new_namespace(fragile_api, "paused")
    flags = ("--namespace", namespace, "--watch-namespaces", namespace, *TIMES)
    operator = start_operator(*flags, kubeconfig=fragile.kubeconfig)
    wait_for(operator.leads, "leader")
    with stopped(fragile, "kube-apiserver"):
        assert operator.ended() == 1
        assert "no renewal of the Lease succeeded" in operator.text()
        operator = start_operator(*flags, kubeconfig=fragile.kubeconfig)
        time.sleep(RENEW_DEADLINE_SECONDS)
        assert operator.process.poll() is None
        assert not operator.is_ready()
    api.apply(make_backend(namespace))
    wait_for(served(api, namespace, "smol"), "status")
    assert operator.stop() == 0


def test_a_compacted_store_is_no_end_of_watching(fragile, fragile_api, start_operator, make_backend, wait_for):
    """What is deleted while nobody can be told, and what can no longer be told afterwards, is found all the same."""
    api, namespace = fragile_api, new_namespace(fragile_api, "compacted")
    # A leader outlives the pause, so it is the watches that have to catch up; and no resync comes to their help.
    patient = ("--lease-duration-seconds", "300", "--lease-renew-deadline-seconds", "250")
    flags = ("--namespace", namespace, "--watch-namespaces", namespace, "--resync-seconds", "3600", *patient)
    operator = start_operator(*flags, kubeconfig=fragile.kubeconfig)
    api.apply(make_backend(namespace))
    wait_for(served(api, namespace, "smol"), "status")
    wait_for(lambda: api.get("Deployment", namespace, "smol"), "Deployment")
    os.kill(operator.process.pid, signal.SIGSTOP)
    try:
        api.delete("ConfigMap", namespace, "smol-limiter")
        for number in range(5):
            api.patch("LLMBackend", namespace, "smol", {"metadata": {"labels": {"touched": str(number)}}})
        compact(fragile)
        restart(fragile, "kube-apiserver")
        wait_for(lambda: answers(api), "API server")
    finally:
        os.kill(operator.process.pid, signal.SIGCONT)
    wait_for(lambda: api.get("ConfigMap", namespace, "smol-limiter"), "repaired ConfigMap")
    api.delete("Service", namespace, "smol")
    wait_for(lambda: api.get("Service", namespace, "smol"), "repaired Service")
    assert operator.stop() == 0
