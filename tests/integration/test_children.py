"""Children of a backend on a real API server: made, kept, repaired, left alone when they are not ours, collected."""

import time

import pytest

pytestmark = pytest.mark.integration

CHILDREN = [("ServiceAccount", "smol"), ("ConfigMap", "smol-limiter"), ("Service", "smol"), ("Deployment", "smol")]
BY_KIND = pytest.mark.parametrize(("kind", "name"), CHILDREN, ids=[kind for kind, _name in CHILDREN])


def children(api, namespace):
    return {kind: api.get(kind, namespace, name) for kind, name in CHILDREN}


def condition(backend, name):
    for entry in backend.get("status", {}).get("conditions", []):
        if entry["type"] == name:
            return entry
    return None


def settled(api, namespace):
    """Tell whether all children exist and status speaks about the newest spec and a Deployment that was looked at."""
    backend = api.get("LLMBackend", namespace, "smol")
    deployment = api.get("Deployment", namespace, "smol")
    return (
        deployment
        and deployment.get("status", {}).get("unavailableReplicas", 0) == deployment["spec"]["replicas"]
        and backend.get("status", {}).get("observedGeneration") == backend["metadata"]["generation"]
        and backend["status"]["replicas"] == deployment["spec"]["replicas"]
        and all(children(api, namespace).values())
    )


@pytest.fixture
def backend(api, operator, namespace, make_backend, wait_for):
    """A backend with all its children, pods made and not running."""
    api.apply(make_backend(namespace))
    wait_for(lambda: settled(api, namespace), "settled backend")
    return api.get("LLMBackend", namespace, "smol")


def test_a_backend_gets_its_children_and_they_name_it_as_their_controller(api, backend, namespace):
    for child in children(api, namespace).values():
        (owner,) = child["metadata"]["ownerReferences"]
        assert owner["uid"] == backend["metadata"]["uid"]
        assert owner["controller"]
        assert child["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "penstock"
        assert {entry["manager"] for entry in child["metadata"]["managedFields"]} <= {
            "penstock",
            "kube-controller-manager",
        }


def test_pods_pass_the_restricted_pod_security_level(api, backend, namespace):
    pods = api.list("Pod", namespace)
    assert len(pods) == 1
    assert [container["name"] for container in pods[0]["spec"]["initContainers"]] == ["limiter"]


def test_the_user_s_object_gets_a_status_and_nothing_else(api, backend, namespace):
    assert "finalizers" not in backend["metadata"]
    assert "annotations" not in backend["metadata"]
    managers = {(entry["manager"], entry.get("subresource", "")) for entry in backend["metadata"]["managedFields"]}
    assert managers == {("kubectl", ""), ("penstock", "status")}


def test_nothing_is_written_while_nothing_changes(api, backend, namespace, operator, wait_for):
    def versions():
        objects = [*children(api, namespace).values(), api.get("LLMBackend", namespace, "smol")]
        return [obj["metadata"]["resourceVersion"] for obj in objects]

    # The Deployment controller's last reports may still be on their way into status.
    wait_for(lambda: versions() == (time.sleep(0.5), versions())[1], "quiet backend")
    before, lists = versions(), operator.metric("penstock_operator_api_requests_total", verb="list")
    time.sleep(2)
    assert versions() == before
    resyncs = operator.metric("penstock_operator_api_requests_total", verb="list") - lists
    assert resyncs >= 6, "no resync has happened, so this has shown nothing"


def test_a_restarted_operator_writes_nothing(api, backend, namespace, start_operator, wait_for):
    before = {kind: child["metadata"]["resourceVersion"] for kind, child in children(api, namespace).items()}
    status = api.get("LLMBackend", namespace, "smol")
    other = start_operator("--watch-namespaces", namespace).until_ready()
    wait_for(
        lambda: other.metric("penstock_operator_api_requests_total", verb="apply") >= len(CHILDREN),
        "pass of the new operator over all children",
    )
    assert other.stop() == 0
    assert {kind: child["metadata"]["resourceVersion"] for kind, child in children(api, namespace).items()} == before
    after = api.get("LLMBackend", namespace, "smol")
    assert (after["metadata"]["resourceVersion"], after["status"]) == (
        status["metadata"]["resourceVersion"],
        status["status"],
    )


@BY_KIND
def test_a_deleted_child_returns(api, backend, namespace, kind, name, wait_for, record_property):
    old = api.get(kind, namespace, name)
    started = time.monotonic()
    api.delete(kind, namespace, name)

    def returned():
        child = api.get(kind, namespace, name)
        return child if child and child["metadata"]["uid"] != old["metadata"]["uid"] else None

    new = wait_for(returned, f"new {kind}")
    milliseconds = (time.monotonic() - started) * 1000
    record_property("milliseconds", round(milliseconds, 1))
    print(f"{kind} returned after {milliseconds:.0f} ms")
    assert new["metadata"]["ownerReferences"] == old["metadata"]["ownerReferences"]


EDITS = {
    "ServiceAccount": {"automountServiceAccountToken": True},
    "ConfigMap": {"data": {"policy.json": "{}"}},
    "Service": {
        "spec": {
            "selector": {"app": "something-else", "serving.penstock.dev/backend": "other"},
            "ports": [{"name": "http", "port": 81, "targetPort": 81}],
            "publishNotReadyAddresses": True,
        }
    },
    "Deployment": {"spec": {"replicas": 7, "paused": True, "template": {"spec": {"enableServiceLinks": True}}}},
}
BOOKKEEPING = ("resourceVersion", "generation", "managedFields")


def without_bookkeeping(child):
    metadata = {name: value for name, value in child["metadata"].items() if name not in BOOKKEEPING}
    metadata.pop("annotations", None)
    return {**child, "metadata": metadata, "status": None}


@BY_KIND
def test_an_edited_child_is_reverted(api, backend, namespace, kind, name, wait_for):
    before = without_bookkeeping(api.get(kind, namespace, name))
    api.patch(kind, namespace, name, EDITS[kind])
    wait_for(lambda: without_bookkeeping(api.get(kind, namespace, name)) == before, f"reverted {kind}")


SECOND_CHOICES = [
    pytest.param({"volumes": [{"name": "penstock-policy", "emptyDir": {}}]}, id="another volume source"),
    pytest.param(
        {"containers": [{"name": "engine", "image": "x", "livenessProbe": {"exec": {"command": ["true"]}}}]},
        id="another probe handler",
    ),
]


@pytest.mark.parametrize("pod", SECOND_CHOICES)
def test_an_edit_that_makes_every_apply_invalid_is_reverted(api, backend, namespace, pod, wait_for):
    before = without_bookkeeping(api.get("Deployment", namespace, "smol"))
    lists = {name: before["spec"]["template"]["spec"][name] for name in ("initContainers", "volumes")}
    edited = {**({} if "containers" in pod else lists), **pod}
    if "volumes" in pod:
        edited["volumes"] = [*pod["volumes"], *lists["volumes"][1:]]
    api.patch("Deployment", namespace, "smol", {"spec": {"template": {"spec": edited}}})
    wait_for(lambda: without_bookkeeping(api.get("Deployment", namespace, "smol")) == before, "reverted Deployment")

    def owners():
        fields = api.get("Deployment", namespace, "smol")["metadata"]["managedFields"]
        return {(entry["manager"], entry["operation"]) for entry in fields}

    wait_for(lambda: ("penstock", "Update") not in owners(), "one owner only")


def test_policy_still_changes_after_its_config_map_was_made_immutable(api, backend, namespace, wait_for):
    api.patch("ConfigMap", namespace, "smol-limiter", {"immutable": True})
    api.patch("LLMBackend", namespace, "smol", {"spec": {"limiter": {"logLevel": "Debug"}}})

    def changed():
        child = api.get("ConfigMap", namespace, "smol-limiter")
        return child and "Debug" in child["data"]["policy.json"] and not child.get("immutable")

    wait_for(changed, "policy with the change")


def test_text_beyond_the_basic_plane_reaches_the_engine(api, backend, namespace, wait_for):
    args = ["--chat-template", "\U0001f680 \x7f \\ud83d"]
    api.patch("LLMBackend", namespace, "smol", {"spec": {"engine": {"args": args}}})

    def tail():
        (engine,) = api.get("Deployment", namespace, "smol")["spec"]["template"]["spec"]["containers"]
        return engine["args"][-2:]

    wait_for(lambda: tail() == args, "arguments as written")


@BY_KIND
def test_a_child_that_loses_its_labels_gets_them_back(api, backend, namespace, kind, name, wait_for):
    uid = api.get(kind, namespace, name)["metadata"]["uid"]
    api.patch(kind, namespace, name, {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}})

    def labelled():
        child = api.get(kind, namespace, name)
        return child["metadata"]["labels"].get("app.kubernetes.io/managed-by") == "penstock" and child

    assert wait_for(labelled, f"labels on the {kind}")["metadata"]["uid"] == uid


def test_what_others_add_to_a_child_is_left_alone(api, backend, namespace, wait_for):
    api.patch("Service", namespace, "smol", {"metadata": {"annotations": {"example.org/note": "mine"}}})
    api.patch("Service", namespace, "smol", {"spec": {"ports": [{"port": 80, "targetPort": 1}]}})
    wait_for(
        lambda: api.get("Service", namespace, "smol")["spec"]["ports"][0]["targetPort"] == 8000, "reverted Service"
    )
    assert api.get("Service", namespace, "smol")["metadata"]["annotations"] == {"example.org/note": "mine"}


@BY_KIND
def test_an_object_that_is_not_ours_is_left_alone_and_named(
    api, operator, namespace, kind, name, make_backend, wait_for
):
    selector = {"matchLabels": {"app": "x"}}
    pod = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
    bodies = {
        "Service": {"spec": {"ports": [{"port": 1234}]}},
        "Deployment": {"spec": {"replicas": 0, "selector": selector, "template": pod}},
    }
    version = "apps/v1" if kind == "Deployment" else "v1"
    foreign = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}
    uid = api.create(foreign | bodies.get(kind, {}))["metadata"]["uid"]
    api.apply(make_backend(namespace))

    def stalled():
        return condition(api.get("LLMBackend", namespace, "smol"), "Stalled")

    found = wait_for(stalled, "Stalled condition")
    assert found["reason"] == "NameTaken"
    assert f"{kind} {name} exists" in found["message"]
    assert condition(api.get("LLMBackend", namespace, "smol"), "Reconciling") is None
    child = api.get(kind, namespace, name)
    assert child["metadata"]["uid"] == uid
    assert "ownerReferences" not in child["metadata"]
    assert "penstock" not in {entry["manager"] for entry in child["metadata"].get("managedFields", [])}
    if kind == "ConfigMap":
        api.delete(kind, namespace, name)
        wait_for(lambda: not stalled() and all(children(api, namespace).values()), "backend that has recovered")


def test_a_burst_of_edits_ends_with_the_last_one(api, backend, namespace, operator, wait_for):
    before = operator.metric("penstock_operator_reconciles_total")
    for number in range(1, 51):
        api.patch("LLMBackend", namespace, "smol", {"spec": {"replicas": number % 5 + 1, "service": {"port": number}}})

    def converged():
        status = api.get("LLMBackend", namespace, "smol")["status"]
        return (
            api.get("Service", namespace, "smol")["spec"]["ports"][0]["port"] == 50
            and api.get("Deployment", namespace, "smol")["spec"]["replicas"] == 1
            and status["url"].endswith(":50")
            and status["observedGeneration"] == 51
        )

    wait_for(converged, "state of the last edit")
    reconciles = operator.metric("penstock_operator_reconciles_total") - before
    print(f"{reconciles:.0f} reconciles for 50 edits, resyncs included")


def test_deleting_a_backend_leaves_nothing(api, backend, namespace, wait_for):
    api.delete("LLMBackend", namespace, "smol")
    wait_for(lambda: not any(children(api, namespace).values()), "end of all children")
    assert api.get("LLMBackend", namespace, "smol") is None


def test_a_backend_made_anew_at_once_gets_children_of_its_own(api, backend, namespace, make_backend, wait_for):
    api.delete("LLMBackend", namespace, "smol")
    new = api.apply(make_backend(namespace))

    def owned():
        found = [child for child in children(api, namespace).values() if child]
        return len(found) == len(CHILDREN) and all(
            child["metadata"]["ownerReferences"][0]["uid"] == new["metadata"]["uid"] for child in found
        )

    wait_for(owned, "children of the new backend")


def test_a_change_of_the_spec_reaches_the_children_it_concerns_and_no_other(api, backend, namespace, wait_for):
    before = children(api, namespace)
    api.patch("LLMBackend", namespace, "smol", {"spec": {"limiter": {"logLevel": "Debug"}}})
    wait_for(
        lambda: "Debug" in api.get("ConfigMap", namespace, "smol-limiter")["data"]["policy.json"],
        "policy with the change",
    )
    for kind in ("ServiceAccount", "Service", "Deployment"):
        after = api.get(kind, namespace, "smol")
        assert after["metadata"].get("generation") == before[kind]["metadata"].get("generation")
        assert without_bookkeeping(after) == without_bookkeeping(before[kind])
