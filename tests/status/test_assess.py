"""Every state of a backend and the conditions it gets; the rules of kstatus hold in all of them."""

import itertools

import pytest

from penstock.api.conditions import Reason
from penstock.status.assess import Observation, assess
from penstock.status.trouble import Trouble

NOW = "2026-11-29T12:00:00Z"
BEFORE = "2026-11-29T11:00:00Z"


def summary(status):
    return {entry["type"]: (entry["status"], entry["reason"]) for entry in status["conditions"]}


def message(status, condition="Ready"):
    return next(entry["message"] for entry in status["conditions"] if entry["type"] == condition)


def observe(**values):
    return Observation(**{"generation": 3, "previous": {}} | values)


def running(deployment, image):
    containers = [{"name": "engine", "image": image}]
    return deployment | {"spec": {"template": {"spec": {"containers": containers}}}}


STALLING = Trouble(reason=Reason.NAME_TAKEN, message="taken", stalled=True)
PASSING = Trouble(reason=Reason.QUOTA_EXCEEDED, message="full")

DEADLINE = {"Progressing": {"status": "False", "reason": "ProgressDeadlineExceeded"}}
QUOTA = {"ReplicaFailure": {"status": "True", "message": 'pods "x" is forbidden: exceeded quota: q'}}
SECURITY = {"ReplicaFailure": {"status": "True", "message": 'pods "x" is forbidden: violates PodSecurity'}}

# deployment (None: there is none), trouble while applying, Ready, the second condition, Available
STATES = [
    pytest.param(None, None, ("Unknown", "Progressing"), "Reconciling", "False", id="first sight"),
    pytest.param({"observed": 0}, None, ("Unknown", "Progressing"), "Reconciling", "False", id="not looked at yet"),
    pytest.param(
        {"replicas": 2, "updated": 2, "ready": 1},
        None,
        ("False", "Scaling"),
        "Reconciling",
        "True",
        id="one is missing",
    ),
    pytest.param(
        {"replicas": 2, "updated": 2, "ready": 2}, None, ("True", "AllReplicasReady"), None, "True", id="complete"
    ),
    pytest.param(
        {"replicas": 3, "updated": 1, "ready": 2},
        None,
        ("False", "RollingOut"),
        "Reconciling",
        "True",
        id="rolling out",
    ),
    pytest.param(
        {"replicas": 3, "updated": 2, "ready": 3},
        None,
        ("False", "RollingOut"),
        "Reconciling",
        "True",
        id="old one left",
    ),
    pytest.param(
        {"replicas": 4, "updated": 4, "ready": 4}, None, ("False", "Scaling"), "Reconciling", "True", id="scaling down"
    ),
    pytest.param(
        {"generation": 2, "observed": 1, "replicas": 2, "updated": 2, "ready": 2},
        None,
        ("False", "RollingOut"),
        "Reconciling",
        "True",
        id="new generation not looked at yet",
    ),
    pytest.param(
        {"replicas": 1, "updated": 1, **DEADLINE},
        None,
        ("False", "ProgressDeadlineExceeded"),
        "Stalled",
        "False",
        id="deadline exceeded",
    ),
    pytest.param(
        {"replicas": 2, "updated": 2, "ready": 2, **DEADLINE},
        None,
        ("True", "AllReplicasReady"),
        None,
        "True",
        id="complete after the deadline",
    ),
    pytest.param(QUOTA, None, ("False", "QuotaExceeded"), "Reconciling", "False", id="quota"),
    pytest.param(SECURITY, None, ("False", "PodsRefused"), "Reconciling", "False", id="pod security"),
    pytest.param(None, STALLING, ("False", "NameTaken"), "Stalled", "False", id="name taken"),
    pytest.param(
        {"replicas": 2, "updated": 2, "ready": 2},
        STALLING,
        ("False", "NameTaken"),
        "Stalled",
        "True",
        id="name taken while complete",
    ),
    pytest.param(None, PASSING, ("False", "QuotaExceeded"), "Reconciling", "False", id="refused for now"),
]


@pytest.mark.parametrize(("deployment", "trouble", "ready", "other", "available"), STATES)
def test_conditions_of_a_state(make_backend, make_deployment, deployment, trouble, ready, other, available):
    observed = make_deployment(**deployment) if deployment is not None else None
    status = assess(make_backend(replicas=2), observe(deployment=observed, trouble=trouble), now=NOW)
    found = summary(status)
    assert found["Ready"] == ready
    assert found["Available"][0] == available
    assert {name for name in found if name not in ("Ready", "Available")} == ({other} if other else set())
    if other:
        assert found[other] == ("True", ready[1])


@pytest.mark.parametrize(
    ("replicas", "ready", "updated", "observed", "conditions", "trouble"),
    list(itertools.product((0, 1, 2), (0, 2), (0, 2), (0, 1), ({}, DEADLINE, QUOTA), (None, STALLING, PASSING))),
)
def test_rules_of_kstatus(make_backend, make_deployment, replicas, ready, updated, observed, conditions, trouble):
    """Ready and Available always; Reconciling or Stalled, only while True, never both, and never beside Ready=True."""
    deployment = make_deployment(replicas=replicas, ready=ready, updated=updated, observed=observed, **conditions)
    found = summary(assess(make_backend(), observe(deployment=deployment, trouble=trouble), now=NOW))
    assert {"Ready", "Available"} <= found.keys()
    extra = found.keys() - {"Ready", "Available"}
    assert all(found[name][0] == "True" for name in extra)
    assert len(extra) == (0 if found["Ready"][0] == "True" else 1)


WHOLE = {"replicas": 2, "updated": 2, "ready": 2}
GONE = {"replicas": 0, "updated": 0, "ready": 0}
SWITCHES = [
    pytest.param({"suspend": True}, GONE, True, ("True", "Suspended"), None, "no replica runs", id="suspended"),
    pytest.param(
        {"suspend": True},
        {"replicas": 2, "updated": 2, "ready": 1},
        True,
        ("False", "Suspended"),
        "Reconciling",
        "2 replicas are being drained",
        id="being suspended",
    ),
    pytest.param({"replicas": 0}, GONE, True, ("True", "ScaledToZero"), None, "no replica is wanted", id="none wanted"),
    pytest.param(
        {"paused": True}, WHOLE, True, ("True", "Paused"), None, "2 of 2 replicas ready", id="paused, nothing to do"
    ),
    pytest.param(
        {"paused": True},
        WHOLE,
        False,
        ("False", "Paused"),
        "Reconciling",
        "the children are not brought to the current spec",
        id="paused, a change waits",
    ),
    pytest.param(
        {"paused": True},
        {"observed": 0},
        False,
        ("Unknown", "Paused"),
        "Reconciling",
        "no child is made",
        id="paused from the start",
    ),
    pytest.param(
        {"paused": True},
        WHOLE | {"ready": 1, **QUOTA},
        True,
        ("False", "QuotaExceeded"),
        "Reconciling",
        "1 of 2 replicas ready: a ResourceQuota",
        id="paused, and in trouble of its own",
    ),
]


@pytest.mark.parametrize(("spec", "deployment", "applied", "ready", "other", "words"), SWITCHES)
def test_paused_and_suspended(make_backend, make_deployment, spec, deployment, applied, ready, other, words):
    observation = observe(deployment=make_deployment(**deployment), applied=applied)
    status = assess(make_backend(**({"replicas": 2} | spec)), observation, now=NOW)
    found = summary(status)
    assert found["Ready"] == ready
    assert found.keys() - {"Ready", "Available"} == ({other} if other else set())
    assert words in message(status)


def test_a_loading_engine_is_told(make_backend, make_deployment, make_pod):
    loading = make_pod(engine={"state": {"running": {}}, "started": False})
    deployment = make_deployment(replicas=1, updated=1)
    status = assess(make_backend(), observe(deployment=deployment, pods=[loading]), now=NOW)
    assert summary(status)["Ready"] == ("False", "WaitingForModel")


def test_the_reason_of_a_rollout_given_up_is_the_pod_s(make_backend, make_deployment, make_pod):
    broken = make_pod(engine={"state": {"waiting": {"reason": "ErrImagePull", "message": "no such tag"}}})
    deployment = make_deployment(replicas=1, updated=1, **DEADLINE)
    status = assess(make_backend(), observe(deployment=deployment, pods=[broken]), now=NOW)
    (stalled,) = (entry for entry in status["conditions"] if entry["type"] == "Stalled")
    assert "no such tag" in stalled["message"]
    assert stalled["message"].startswith("0 of 1 replicas ready")


def test_a_trouble_of_old_pods_is_not_told_while_a_new_spec_is_being_taken_up(make_backend, make_deployment, make_pod):
    """The pods are those of the spec before, and the new one may be the user's remedy."""
    broken = make_pod(engine={"state": {"waiting": {"reason": "ErrImagePull"}}})
    deployment = make_deployment(generation=2, observed=1, replicas=1, updated=1)
    status = assess(make_backend(), observe(deployment=deployment, pods=[broken]), now=NOW)
    assert summary(status)["Ready"] == ("False", "RollingOut")


def test_a_trouble_of_pods_that_all_serve_is_not_told(make_backend, make_deployment, make_pod):
    restarted = make_pod(engine={"state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1}}})
    deployment = make_deployment(replicas=1, ready=1, updated=1)
    status = assess(make_backend(), observe(deployment=deployment, pods=[restarted]), now=NOW)
    assert summary(status)["Ready"] == ("True", "AllReplicasReady")


HUB = {"huggingFace": {"repository": "owner/model", "file": "m.gguf"}}
CACHE = {"persistentVolumeClaim": {"claimName": "models"}}
EACH = "each new replica downloads the model again"


@pytest.mark.parametrize(
    ("model", "told"),
    [
        pytest.param({"source": HUB}, True, id="no cache"),
        pytest.param({"source": HUB, "cache": {"ephemeral": {"sizeMebibytes": 9}}}, True, id="a cache per replica"),
        pytest.param({"source": HUB, "cache": CACHE}, False, id="a shared cache"),
        pytest.param({"source": {"baked": {"path": "/m.gguf"}}}, False, id="no download"),
    ],
)
def test_what_a_download_without_a_shared_cache_costs_is_told_and_no_trouble(
    make_backend, make_deployment, make_pod, model, told
):
    backend = make_backend(model={"name": "m", **model}, replicas=2)
    status = assess(backend, observe(deployment=make_deployment(**WHOLE)), now=NOW)
    assert summary(status)["Ready"] == ("True", "AllReplicasReady")
    assert (EACH in message(status)) is told
    pods = [make_pod(download={"state": {"running": {}}})]
    begun = observe(deployment=make_deployment(replicas=2, updated=2), pods=pods)
    status = assess(backend, begun, now=NOW)
    assert summary(status)["Ready"] == ("False", "DownloadingModel")
    assert (EACH in message(status)) is told


@pytest.mark.parametrize(
    ("volume", "reason"),
    [
        pytest.param({"emptyDir": {}}, "ImageVolumesUnavailable", id="dropped by the API server"),
        pytest.param({"image": {"reference": "models:1"}}, "Scaling", id="stored"),
    ],
)
def test_an_image_volume_that_the_api_server_has_dropped(make_backend, make_deployment, volume, reason):
    backend = make_backend(model={"name": "m", "source": {"image": {"reference": "models:1", "path": "/m.gguf"}}})
    deployment = make_deployment(replicas=1, updated=1)
    deployment["spec"] = {"template": {"spec": {"volumes": [{"name": "penstock-model", **volume}]}}}
    status = assess(backend, observe(deployment=deployment), now=NOW)
    assert summary(status)["Ready"] == ("False", reason)
    assert ("Stalled" in summary(status)) is (reason != "Scaling")


def test_a_missing_claim_is_told(make_backend, make_deployment):
    observation = observe(deployment=make_deployment(replicas=1, updated=1), claims={"models": None})
    status = assess(make_backend(), observation, now=NOW)
    assert summary(status)["Ready"] == ("False", "WaitingForVolume")
    assert "PersistentVolumeClaim models does not exist" in message(status)


def test_what_only_events_tell_is_told_when_nothing_else_explains(make_backend, make_deployment, make_pod):
    mount = {"reason": "FailedMount", "message": 'MountVolume.SetUp failed for volume "x" : secret "y" not found'}
    deployment = make_deployment(replicas=1, updated=1)
    status = assess(make_backend(), observe(deployment=deployment, events=[mount]), now=NOW)
    assert summary(status)["Ready"] == ("False", "WaitingForVolume")
    pulling = make_pod(engine={"state": {"waiting": {"reason": "ErrImagePull"}}})
    status = assess(make_backend(), observe(deployment=deployment, events=[mount], pods=[pulling]), now=NOW)
    assert summary(status)["Ready"] == ("False", "ImagePullFailed")


def test_a_right_that_is_missing_to_explain_is_named(make_backend, make_deployment):
    observation = observe(deployment=make_deployment(replicas=1, updated=1), unreadable=["list events"])
    status = assess(make_backend(), observation, now=NOW)
    assert message(status).endswith("the operator needs the right to list events)")


@pytest.mark.parametrize(
    ("deployment", "count"),
    [
        pytest.param({"replicas": 3, "updated": 1, "ready": 2}, "2 of 2 replicas ready", id="surge, old ones serve"),
        pytest.param({"replicas": 3, "updated": 2, "ready": 3}, "3 replicas ready, 2 wanted", id="surge, all serve"),
        pytest.param({"replicas": 2, "updated": 1, "ready": 1}, "1 of 2 replicas ready", id="in place"),
        pytest.param({"replicas": 2, "updated": 2, "ready": 0}, "0 of 2 replicas ready", id="none"),
        pytest.param(WHOLE, "2 of 2 replicas ready", id="complete"),
    ],
)
def test_ready_and_available_count_the_same_in_the_same_words(make_backend, make_deployment, deployment, count):
    status = assess(make_backend(replicas=2), observe(deployment=make_deployment(**deployment)), now=NOW)
    assert message(status).startswith(count)
    assert message(status, "Available").startswith(count)


def test_a_cause_that_was_named_is_kept_while_the_same_trouble_goes_on_without_it(
    make_backend, make_deployment, make_pod
):
    def pulled(previous, words):
        pod = make_pod(engine={"state": {"waiting": words}})
        observation = observe(previous=previous, deployment=make_deployment(replicas=1, updated=1), pods=[pod])
        return assess(make_backend(), observation, now=NOW)

    failed = pulled({}, {"reason": "ErrImagePull", "message": "no such tag"})
    held = pulled(failed, {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "engine:1"'})
    assert held == failed
    assert message(held).endswith("no such tag")


@pytest.mark.parametrize("revision", ["smol-0123456789", None])
def test_the_revision_is_told_when_there_is_one(make_backend, make_deployment, revision):
    status = assess(make_backend(), observe(deployment=make_deployment(replicas=1), revision=revision), now=NOW)
    assert status.get("rollout") == ({"currentRevision": revision} if revision else None)


def test_a_revision_that_nobody_has_reported_on_is_not_worth_a_write(make_backend):
    assert "rollout" not in assess(make_backend(), observe(revision="smol-0123456789"), now=NOW)


def test_numbers_selector_address_and_version(make_backend, make_deployment):
    deployment = running(make_deployment(replicas=3, ready=2, updated=1), "llama.cpp:server-b11434")
    status = assess(make_backend(replicas=3), observe(deployment=deployment), now=NOW)
    del status["conditions"]
    assert status == {
        "observedGeneration": 3,
        "replicas": 3,
        "readyReplicas": 2,
        "updatedReplicas": 1,
        "selector": "app.kubernetes.io/managed-by=penstock,serving.penstock.dev/backend=smol",
        "url": "http://smol.team.svc",
        "engineVersion": "b11434",
    }


VERSIONS = [
    pytest.param({}, "llama.cpp:server-b11000", "b11000", id="a kept template or a default image"),
    pytest.param({"image": "llama.cpp:server-b11434"}, "llama.cpp:server-b11000", "b11000", id="not taken up yet"),
    pytest.param({"version": "b11434"}, "own:latest", "b11434", id="declared"),
    pytest.param({}, "own:latest", None, id="unknown"),
]


@pytest.mark.parametrize(("engine", "image", "version"), VERSIONS)
def test_the_engine_version_is_that_of_the_template_that_runs(make_backend, make_deployment, engine, image, version):
    deployment = running(make_deployment(replicas=1, ready=1, updated=1), image)
    status = assess(make_backend(engine={"type": "LlamaCpp", **engine}), observe(deployment=deployment), now=NOW)
    assert status.get("engineVersion") == version


def test_before_anything_runs_there_is_no_engine_version(make_backend):
    assert "engineVersion" not in assess(make_backend(), observe(), now=NOW)


@pytest.mark.parametrize(
    ("mode", "served", "told"),
    [("Enabled", False, True), ("Enabled", True, False), ("Auto", False, False), ("Disabled", False, False)],
)
def test_a_pod_monitor_that_cannot_be_made_is_told(make_backend, make_deployment, mode, served, told):
    backend = make_backend(monitoring={"podMonitor": mode})
    deployment = make_deployment(replicas=1, ready=1, updated=1)
    status = assess(backend, observe(deployment=deployment, pod_monitors=served), now=NOW)
    assert summary(status)["Ready"] == ("True", "AllReplicasReady")
    assert ("PodMonitor" in message(status)) is told


def test_a_spec_nobody_understands_keeps_what_was_known(make_deployment):
    previous = {"selector": "a=b", "url": "http://x", "engineVersion": "b1"}
    deployment = make_deployment(replicas=1, ready=1, updated=1)
    trouble = Trouble(reason=Reason.INVALID_SPEC, message="spec.engine.version: no", stalled=True)
    status = assess(None, observe(previous=previous, deployment=deployment, trouble=trouble), now=NOW)
    assert summary(status) == {
        "Ready": ("False", "InvalidSpec"),
        "Available": ("True", "ReplicasAvailable"),
        "Stalled": ("True", "InvalidSpec"),
    }
    assert previous.items() <= status.items()
    assert status["readyReplicas"] == 1


def test_times_change_only_with_their_status(make_backend, make_deployment):
    first = assess(make_backend(), observe(), now=BEFORE)
    second = assess(make_backend(), observe(previous=first, deployment=make_deployment(replicas=1, updated=1)), now=NOW)
    times = {entry["type"]: entry["lastTransitionTime"] for entry in second["conditions"]}
    assert times == {"Ready": NOW, "Available": BEFORE, "Reconciling": BEFORE}


def test_the_same_observation_gives_the_same_status(make_backend, make_deployment):
    first = assess(make_backend(), observe(deployment=make_deployment(replicas=1)), now=BEFORE)
    again = assess(make_backend(), observe(previous=first, deployment=make_deployment(replicas=1)), now=NOW)
    assert again == first


def test_every_condition_names_the_generation_it_speaks_about(make_backend):
    status = assess(make_backend(), observe(generation=7), now=NOW)
    assert {entry["observedGeneration"] for entry in status["conditions"]} == {7}
