"""The operator as a process: rights, signals, several at once, and what it says when it cannot run."""

import base64
import json
import signal
import time

import pytest
import requests

pytestmark = pytest.mark.integration


KEYS = [("penstock-drain-key", "key"), ("penstock-push-key", "private")]


def test_two_operators_that_start_together_make_one_of_each_key(
    api, plane, installed, start_operator, namespace, wait_for
):
    """Two installations in one namespace: each has its own leader, and both take the same keys."""
    flags = ("--namespace", namespace, "--watch-namespaces", namespace)
    first, second = (start_operator(*flags, kubeconfig=plane.kubeconfig) for _ in range(2))
    for operator in (first, second):
        wait_for(operator.leads, "leader")
    for name, field in KEYS:
        key = wait_for(lambda name=name: api.get("Secret", namespace, name), "Secret")
        assert len(base64.b64decode(key["data"][field])) == 32
    for operator in (first, second):
        assert operator.stop() == 0
        assert "holds another key" not in operator.text()


def test_a_deleted_key_comes_back_as_it_was(api, plane, installed, start_operator, namespace, wait_for):
    flags = ("--namespace", namespace, "--watch-namespaces", namespace, "--resync-seconds", "0.5")
    operator = start_operator(*flags, kubeconfig=plane.kubeconfig).until_ready()
    for name, _ in KEYS:
        key = wait_for(lambda name=name: api.get("Secret", namespace, name), "Secret")["data"]
        api.delete("Secret", namespace, name)
        assert wait_for(lambda name=name: api.get("Secret", namespace, name), "Secret")["data"] == key
    assert operator.stop() == 0


def test_another_key_is_left_in_place_and_told(api, plane, installed, start_operator, namespace, wait_for):
    flags = ("--namespace", namespace, "--watch-namespaces", namespace, "--resync-seconds", "0.5")
    operator = start_operator(*flags, kubeconfig=plane.kubeconfig).until_ready()
    for name, field in KEYS:
        wait_for(lambda name=name: api.get("Secret", namespace, name), "Secret")
        other = base64.b64encode(b"x" * 32).decode()
        api.patch("Secret", namespace, name, {"data": {field: other}})
        wait_for(lambda name=name: f"{name} holds another key" in operator.text(), "warning")
        assert api.get("Secret", namespace, name)["data"][field] == other
    assert operator.stop() == 0


def test_a_lost_push_key_is_made_anew_and_reaches_the_limiters_without_touching_a_pod(
    api, plane, installed, start_operator, namespace, make_backend, wait_for
):
    def trusted():
        policy = api.get("ConfigMap", namespace, "smol-limiter")
        return policy and json.loads(policy["data"]["policy.json"])["trustedKeys"]

    flags = ("--namespace", namespace, "--watch-namespaces", namespace)
    operator = start_operator(*flags, kubeconfig=plane.kubeconfig).until_ready()
    api.apply(make_backend(namespace))
    wait_for(lambda: api.get("Deployment", namespace, "smol"), "Deployment")
    before = trusted()
    assert before == [api.get("Secret", namespace, "penstock-push-key")["data"]["public"]]
    assert operator.stop() == 0
    template = api.get("Deployment", namespace, "smol")["spec"]["template"]
    api.delete("Secret", namespace, "penstock-push-key")
    operator = start_operator(*flags, kubeconfig=plane.kubeconfig).until_ready()
    wait_for(lambda: trusted() != before, "another key")
    assert trusted() == [api.get("Secret", namespace, "penstock-push-key")["data"]["public"]]
    assert api.get("Deployment", namespace, "smol")["spec"]["template"] == template
    assert operator.stop() == 0


def test_two_operators_on_one_namespace_agree(api, operator, start_operator, namespace, make_backend, wait_for):
    """Both apply the same under the same name, so neither ever undoes the other's work."""
    other = start_operator("--watch-namespaces", namespace).until_ready()
    api.apply(make_backend(namespace))
    wait_for(lambda: len(api.list("Pod", namespace)) == 1, "pod")
    time.sleep(1)
    before = api.get("Deployment", namespace, "smol")["metadata"]
    time.sleep(1.5)
    assert api.get("Deployment", namespace, "smol")["metadata"]["generation"] == before["generation"] == 1
    other.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_it_cleanly(start_operator, operator_kubeconfig, number, record_property):
    operator = start_operator().until_ready()
    # An open connection to an endpoint must not hold it up.
    session = requests.Session()
    session.trust_env = False
    session.get(f"http://127.0.0.1:{operator.metrics}/metrics", timeout=5)
    started = time.monotonic()
    status = operator.stop(number)
    seconds = time.monotonic() - started
    session.close()
    record_property("seconds", round(seconds, 2))
    print(f"ended after {seconds:.2f} s")
    assert status == 0
    assert seconds < 10
    assert "Traceback" not in operator.text()
    assert "Error" not in operator.text()


def test_killed_without_warning_it_starts_again_and_goes_on(api, start_operator, namespace, make_backend, wait_for):
    first = start_operator("--watch-namespaces", namespace).until_ready()
    first.stop(signal.SIGKILL)
    api.apply(make_backend(namespace))
    start_operator("--watch-namespaces", namespace).until_ready()
    wait_for(lambda: api.get("Deployment", namespace, "smol"), "Deployment")


def test_without_rights_it_says_which_one_is_missing_and_ends(plane, start_operator, installed):
    nobody = plane.kubeconfig_for("system:serviceaccount:default:nobody", groups=["system:authenticated"])
    operator = start_operator("--start-patience-seconds", "0", kubeconfig=nobody)
    assert operator.ended() == 1
    last = operator.text().strip().splitlines()[-1]
    assert last.startswith("penstock operator: a permission is missing")
    assert 'cannot list resource "llmbackends"' in last
    assert "Traceback" not in operator.text()


def test_without_its_namespace_it_says_so_and_ends(start_operator):
    operator = start_operator("--start-patience-seconds", "0", "--namespace", "nowhere")
    assert operator.ended() == 1
    assert "cannot be kept in namespace nowhere" in operator.text().splitlines()[-1]
    assert "Traceback" not in operator.text()


def test_limited_to_a_namespace_it_leaves_others_alone_and_needs_a_role_only(
    api, plane, installed, start_operator, make_backend, wait_for
):
    """The rights are those of the installation's ClusterRole, bound in one namespace instead of the cluster."""
    for name in ("served", "not-served"):
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    bindings = [("served", "ClusterRole"), ("penstock-system", "Role")]
    for number, (namespace, kind) in enumerate(bindings):
        api.create(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": f"limited-{number}", "namespace": namespace},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "penstock-operator"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "limited"}],
            }
        )
    kubeconfig = plane.kubeconfig_for("limited", groups=["system:authenticated"])
    # The second one was deleted, and its Role with it: that must not keep the operator from serving the first.
    flags = ("--watch-namespaces", "served,deleted", "--lease-name", "penstock-operator")
    operator = start_operator(*flags, kubeconfig=kubeconfig)
    operator.until_ready()
    for name in ("served", "not-served"):
        api.apply(make_backend(name, name="limited"))
    wait_for(lambda: api.get("Deployment", "served", "limited"), "Deployment")
    time.sleep(1)
    assert operator.stop() == 0
    assert "namespace deleted cannot be read and is left alone" in operator.text()
    assert "Forbidden" not in operator.text()


def test_the_log_has_no_line_per_event(operator, api, namespace, make_backend, wait_for):
    api.apply(make_backend(namespace))
    wait_for(lambda: api.list("Pod", namespace), "pod")
    assert "succeeded" not in operator.text()
    assert f"{namespace}/smol: Ready=" in operator.text()
