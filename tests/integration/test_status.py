"""Status of a backend, with a real Deployment controller below it and pods whose status the test writes."""

import pytest

pytestmark = pytest.mark.integration


def conditions(api, namespace):
    backend = api.get("LLMBackend", namespace, "smol") or {}
    return {entry["type"]: entry for entry in backend.get("status", {}).get("conditions", [])}


def reason(api, namespace, condition="Ready"):
    return conditions(api, namespace).get(condition, {}).get("reason")


@pytest.fixture
def pod(api, operator, namespace, make_backend, wait_for):
    """Return the name of the only pod of a new backend."""
    api.apply(make_backend(namespace))
    wait_for(lambda: reason(api, namespace) == "Scaling", "backend whose replica is being started")
    (pod,) = api.list("Pod", namespace)
    return pod["metadata"]["name"]


def write_ready(api, namespace, pod):
    now = "2026-01-01T00:00:00Z"
    names = ("Ready", "ContainersReady", "Initialized", "PodScheduled")
    ready = [{"type": name, "status": "True", "lastTransitionTime": now} for name in names]
    api.patch("Pod", namespace, pod, {"status": {"phase": "Running", "conditions": ready}}, subresource="status")


def test_ready_when_the_replica_is(api, namespace, pod, wait_for):
    assert conditions(api, namespace)["Available"]["status"] == "False"
    assert conditions(api, namespace)["Reconciling"]["status"] == "True"
    write_ready(api, namespace, pod)
    wait_for(lambda: reason(api, namespace) == "AllReplicasReady", "ready backend")
    found = conditions(api, namespace)
    assert {name: entry["status"] for name, entry in found.items()} == {"Ready": "True", "Available": "True"}
    status = api.get("LLMBackend", namespace, "smol")["status"]
    assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (1, 1, 1)
    assert status["url"] == f"http://smol.{namespace}.svc"
    scale = api.request("GET", api.path("LLMBackend", namespace, "smol") + "/scale").json()
    assert scale["status"]["replicas"] == 1
    selected = api.request("GET", api.path("Pod", namespace), params={"labelSelector": scale["status"]["selector"]})
    assert [item["metadata"]["name"] for item in selected.json()["items"]] == [pod]


def test_a_scaler_s_write_reaches_the_deployment(api, namespace, pod, wait_for):
    path = api.path("LLMBackend", namespace, "smol") + "/scale"
    scale = api.request("GET", path).json()
    scale["spec"]["replicas"] = 2
    assert api.request("PUT", path, json=scale).ok
    wait_for(lambda: len(api.list("Pod", namespace)) == 2, "two pods")
    wait_for(lambda: api.get("LLMBackend", namespace, "smol")["status"]["replicas"] == 2, "two replicas in status")


def test_a_pod_s_trouble_is_told_and_forgotten(api, namespace, pod, wait_for):
    trouble = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    }
    api.patch("Pod", namespace, pod, {"status": {"conditions": [trouble]}}, subresource="status")
    wait_for(lambda: reason(api, namespace) == "NoFreeAccelerator", "reason of the pod")
    assert "3 Insufficient nvidia.com/gpu" in conditions(api, namespace)["Ready"]["message"]
    assert "Stalled" not in conditions(api, namespace)
    write_ready(api, namespace, pod)
    wait_for(lambda: reason(api, namespace) == "AllReplicasReady", "ready backend")


def test_a_crash_tells_the_engine_s_last_words(api, namespace, pod, wait_for):
    status = {
        "name": "engine",
        "image": "x",
        "imageID": "",
        "ready": False,
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
        "lastState": {"terminated": {"exitCode": 1, "message": "loading\nerror: unable to open model file\n"}},
    }
    api.patch("Pod", namespace, pod, {"status": {"containerStatuses": [status]}}, subresource="status")
    wait_for(lambda: reason(api, namespace) == "EngineCrashing", "reason of the pod")
    assert "exit code 1: error: unable to open model file" in conditions(api, namespace)["Ready"]["message"]


def test_a_quota_is_named(api, operator, namespace, make_backend, wait_for):
    quota = {"hard": {"pods": "0"}}
    api.create(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "none", "namespace": namespace},
            "spec": quota,
        }
    )
    wait_for(lambda: api.get("ResourceQuota", namespace, "none").get("status", {}).get("hard"), "quota in force")
    api.apply(make_backend(namespace))
    wait_for(lambda: reason(api, namespace) == "QuotaExceeded", "QuotaExceeded")
    assert "exceeded quota: none" in conditions(api, namespace)["Ready"]["message"]


def test_an_invalid_spec_stalls_and_leaves_the_children_as_they_are(api, namespace, pod, wait_for):
    write_ready(api, namespace, pod)
    wait_for(lambda: reason(api, namespace) == "AllReplicasReady", "ready backend")
    before = api.get("Deployment", namespace, "smol")["metadata"]["resourceVersion"]
    api.patch("LLMBackend", namespace, "smol", {"spec": {"engine": {"version": "newest"}, "replicas": 3}})
    wait_for(lambda: reason(api, namespace, "Stalled") == "InvalidSpec", "Stalled condition")
    found = conditions(api, namespace)
    assert "spec.engine.version" in found["Stalled"]["message"]
    assert found["Ready"]["status"] == "False"
    assert found["Available"]["status"] == "True"
    assert "Reconciling" not in found
    assert api.get("Deployment", namespace, "smol")["metadata"]["resourceVersion"] == before
    api.patch("LLMBackend", namespace, "smol", {"spec": {"engine": {"version": None}, "replicas": 1}})
    wait_for(lambda: reason(api, namespace) == "AllReplicasReady", "ready backend")
    assert "Stalled" not in conditions(api, namespace)


def test_a_rollout_is_under_way_until_the_new_replica_has_replaced_the_old(api, namespace, pod, wait_for):
    write_ready(api, namespace, pod)
    wait_for(lambda: reason(api, namespace) == "AllReplicasReady", "ready backend")
    since = conditions(api, namespace)["Available"]["lastTransitionTime"]
    api.patch("LLMBackend", namespace, "smol", {"spec": {"engine": {"args": ["--verbose"]}}})
    wait_for(lambda: reason(api, namespace) == "RollingOut", "RollingOut")
    assert reason(api, namespace, "Reconciling") == "RollingOut"
    wait_for(lambda: len(api.list("Pod", namespace)) == 2, "surge pod")
    (new,) = (item["metadata"]["name"] for item in api.list("Pod", namespace) if item["metadata"]["name"] != pod)
    write_ready(api, namespace, new)
    wait_for(lambda: reason(api, namespace) == "AllReplicasReady", "ready backend")
    found = conditions(api, namespace)
    assert found["Available"]["lastTransitionTime"] == since
    assert found["Ready"]["observedGeneration"] == 2
