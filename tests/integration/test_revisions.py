"""Templates that are kept, on a real API server: what a newer Penstock, a lost revision and an adoption leave alone.

Each backend here wants no replica: there is no kubelet, so only then it is ready, as an adoption asks for.
"""

import contextlib

import pytest

pytestmark = pytest.mark.integration

NEWER = "localhost/penstock:newer"
REVISION = "serving.penstock.dev/revision"
KEY = ("Deployment", "smol")


def ready(api, namespace):
    backend = api.get("LLMBackend", namespace, "smol")
    conditions = {entry["type"]: entry for entry in backend.get("status", {}).get("conditions", [])}
    current = conditions.get("Ready", {}).get("observedGeneration") == backend["metadata"]["generation"]
    return backend if current and conditions["Ready"]["status"] == "True" else None


@pytest.fixture
def release(plane, start_operator, namespace):
    """Run an operator of another release for this namespace.

    It leads with a Lease of its own, which the rights of the installation do not allow.
    """
    kubeconfig = plane.kubeconfig_for("administrator", groups=("system:masters",))

    @contextlib.contextmanager
    def run(image):
        flags = ("--watch-namespaces", namespace, "--image", image, "--lease-name", namespace)
        process = start_operator(*flags, kubeconfig=kubeconfig).until_ready()
        try:
            yield process
        finally:
            assert process.stop() == 0

    return run


@pytest.fixture
def backend(api, release, namespace, make_backend, wait_for):
    """A backend made by one release, which has ended."""
    with release("localhost/penstock:older"):
        api.apply(make_backend(namespace, replicas=0, resources={"requests": {"cpu": "0.5", "memory": "1024Mi"}}))
        wait_for(lambda: ready(api, namespace), "ready backend")
    return api.get("LLMBackend", namespace, "smol")


def deployment(api, namespace):
    return api.get("Deployment", namespace, "smol")


def history(api, namespace):
    found = api.list("ControllerRevision", namespace)
    return sorted(
        (one for one in found if one["metadata"]["name"].startswith("smol-")), key=lambda one: one["revision"]
    )


def rolls(found):
    """Return how many templates the Deployment controller has seen."""
    return found["metadata"]["annotations"]["deployment.kubernetes.io/revision"]


def limiter_image(found):
    return found["spec"]["template"]["spec"]["initContainers"][-1]["image"]


def passed(process):
    """Return a probe for the end of the first pass: all children were applied, or found to need nothing."""
    return lambda: process.metric("penstock_operator_reconciles_total") >= 1


def test_a_newer_release_changes_neither_deployment_nor_history(api, backend, namespace, release, wait_for):
    before = deployment(api, namespace), history(api, namespace)
    with release(NEWER) as process:
        wait_for(passed(process), "pass of the newer release")
    assert (deployment(api, namespace), history(api, namespace)) == before


def test_status_names_the_revision(api, backend, namespace):
    (one,) = history(api, namespace)
    assert backend["status"]["rollout"]["currentRevision"] == one["metadata"]["name"]
    assert deployment(api, namespace)["metadata"]["annotations"][REVISION] == one["metadata"]["name"]


def test_a_change_of_the_spec_adds_a_revision_of_the_newer_release(api, backend, namespace, release, wait_for):
    with release(NEWER):
        api.patch("LLMBackend", namespace, "smol", {"spec": {"engine": {"maxConcurrency": 2}}})
        wait_for(lambda: limiter_image(deployment(api, namespace)) == NEWER, "template of the newer release")
        api.patch("LLMBackend", namespace, "smol", {"spec": {"engine": {"maxConcurrency": None}}})
        wait_for(lambda: limiter_image(deployment(api, namespace)) != NEWER, "template of the older release")
    older, newer = reversed(history(api, namespace))
    assert (older["revision"], newer["revision"]) == (3, 2)


@pytest.mark.parametrize("running", [False, True], ids=["while no operator runs", "while one runs"])
def test_a_deleted_revision_returns_with_the_template_that_runs(api, backend, namespace, release, wait_for, running):
    before, (old,) = deployment(api, namespace), history(api, namespace)
    if not running:
        api.delete("ControllerRevision", namespace, old["metadata"]["name"])
    with release(NEWER) as process:
        wait_for(passed(process), "pass of the newer release")
        if running:
            api.delete("ControllerRevision", namespace, old["metadata"]["name"])
        wait_for(
            lambda: (
                history(api, namespace)
                and deployment(api, namespace)["metadata"]["annotations"].get(REVISION)
                == history(api, namespace)[-1]["metadata"]["name"]
            ),
            "new revision",
        )
    after, (new,) = deployment(api, namespace), history(api, namespace)
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert rolls(after) == rolls(before)
    assert after["spec"] == before["spec"]
    assert new["data"]["podSpec"] == old["data"]["podSpec"]
    assert new["data"]["renderer"] == old["data"]["renderer"]


def test_a_revision_that_has_lost_its_labels_gets_them_back(api, backend, namespace, release, wait_for):
    (old,) = history(api, namespace)
    with release(NEWER) as process:
        wait_for(passed(process), "pass of the newer release")
        name = old["metadata"]["name"]
        api.patch(
            "ControllerRevision", namespace, name, {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}}
        )

        def labelled():
            return history(api, namespace)[0]["metadata"]["labels"].get("app.kubernetes.io/managed-by") == "penstock"

        wait_for(labelled, "labels on the revision")
    (new,) = history(api, namespace)
    assert new["metadata"]["uid"] == old["metadata"]["uid"]
    assert new["data"] == old["data"]


def test_what_a_release_without_history_has_left_is_adopted_as_it_runs(api, backend, namespace, release, wait_for):
    annotations = dict.fromkeys(deployment(api, namespace)["metadata"]["annotations"])
    annotations.pop("deployment.kubernetes.io/revision", None)
    api.patch("Deployment", namespace, "smol", {"metadata": {"annotations": annotations}})
    for one in history(api, namespace):
        api.delete("ControllerRevision", namespace, one["metadata"]["name"])
    before = deployment(api, namespace)
    with release(NEWER):
        wait_for(lambda: history(api, namespace), "first revision")
        wait_for(lambda: REVISION in deployment(api, namespace)["metadata"].get("annotations", {}), "marked Deployment")
    after = deployment(api, namespace)
    assert rolls(after) == rolls(before)
    assert after["spec"] == before["spec"]
    (owner,) = (
        entry
        for entry in after["metadata"]["managedFields"]
        if (entry["manager"], entry["operation"]) == ("penstock", "Apply")
    )
    pod = owner["fieldsV1"]["f:spec"]["f:template"]["f:spec"]
    assert "f:restartPolicy" not in pod, "a default of the API server has become ours"


def test_rolling_takes_the_newer_template(api, backend, namespace, release, wait_for):
    with release(NEWER):
        api.patch("LLMBackend", namespace, "smol", {"spec": {"upgradePolicy": "Rolling"}})
        wait_for(lambda: limiter_image(deployment(api, namespace)) == NEWER, "template of the newer release")
    assert [one["revision"] for one in history(api, namespace)] == [1, 2]


def test_a_revision_whose_content_is_not_ours_is_replaced(api, backend, namespace, release, wait_for):
    before, (old,) = deployment(api, namespace), history(api, namespace)
    api.delete("ControllerRevision", namespace, old["metadata"]["name"])
    metadata = {key: old["metadata"][key] for key in ("name", "namespace", "labels", "ownerReferences")}
    foreign = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata, "revision": 9}
    api.create({**foreign, "data": {"podSpec": "x", "template": {"spec": {}}}})
    with release(NEWER):

        def replaced():
            found = history(api, namespace)
            return found and all(one["data"]["podSpec"] == old["data"]["podSpec"] for one in found)

        wait_for(replaced, "revision with the template that runs")
    after = deployment(api, namespace)
    assert rolls(after) == rolls(before)
    assert after["spec"] == before["spec"]
