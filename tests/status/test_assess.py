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


def observe(**values):
    return Observation(**{"generation": 3, "previous": {}} | values)


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


def test_no_replicas_wanted_is_ready(make_backend, make_deployment):
    status = assess(make_backend(replicas=0), observe(deployment=make_deployment()), now=NOW)
    assert summary(status) == {"Ready": ("True", "ScaledToZero"), "Available": ("False", "NoReplicaReady")}


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


def test_numbers_selector_address_and_version(make_backend, make_deployment):
    deployment = make_deployment(replicas=3, ready=2, updated=1)
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


def test_an_unknown_engine_version_is_absent(make_backend):
    backend = make_backend(engine={"type": "LlamaCpp", "image": "own:latest"})
    assert "engineVersion" not in assess(backend, observe(), now=NOW)


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
