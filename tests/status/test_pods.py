"""Each trouble of a pod has its reason and a message a user can act on."""

import pytest

from penstock.status.pods import LONGEST_QUOTE, is_loading, trouble_of


def waiting(reason, message=""):
    return {"state": {"waiting": {"reason": reason, "message": message}}}


def crashed(**terminated):
    return waiting("CrashLoopBackOff") | {"lastState": {"terminated": terminated}, "restartCount": 2, "ready": False}


TROUBLES = [
    pytest.param(
        {
            "scheduled": {
                "reason": "Unschedulable",
                "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
            }
        },
        "NoFreeAccelerator",
        "no node has a free nvidia.com/gpu: ",
        id="no GPU",
    ),
    pytest.param(
        {"scheduled": {"reason": "Unschedulable", "message": "2 Insufficient nvidia.com/mig-1g.10gb."}},
        "NoFreeAccelerator",
        "no node has a free nvidia.com/mig-1g.10gb",
        id="no GPU slice",
    ),
    pytest.param(
        {"scheduled": {"reason": "Unschedulable", "message": "0/2 nodes are available: 2 Insufficient memory."}},
        "Unschedulable",
        "2 Insufficient memory",
        id="no memory",
    ),
    pytest.param(
        {"scheduled": {"reason": "Unschedulable", "message": 'persistentvolumeclaim "models" not found'}},
        "WaitingForVolume",
        'persistentvolumeclaim "models" not found',
        id="no claim",
    ),
    pytest.param(
        {"engine": waiting("ErrImagePull", "not found")},
        "ImagePullFailed",
        "image engine:1 of the engine: not found",
        id="image not found",
    ),
    pytest.param(
        {"limiter": waiting("ImagePullBackOff")},
        "ImagePullFailed",
        "image penstock:1 of the limiter: ImagePullBackOff",
        id="limiter image not found",
    ),
    pytest.param(
        {"engine": waiting("CreateContainerConfigError", 'secret "token" not found')},
        "PodsRefused",
        'the engine of pod smol-1 cannot be made: secret "token" not found',
        id="missing secret",
    ),
    pytest.param(
        {"engine": crashed(exitCode=1, message="loading\n\n  error: no such file  \n")},
        "EngineCrashing",
        "ended with exit code 1: error: no such file",
        id="crash with last words",
    ),
    pytest.param(
        {"engine": crashed(exitCode=137, reason="OOMKilled")},
        "EngineCrashing",
        "spec.resources.limits.memory",
        id="out of memory",
    ),
    pytest.param(
        {"engine": {"state": {"running": {}}, "lastState": {"terminated": {"exitCode": 3}}, "ready": False}},
        "EngineCrashing",
        "ended with exit code 3",
        id="between two crashes",
    ),
    pytest.param(
        {"engine": waiting("RunContainerError", "exec: no such file")},
        "EngineCrashing",
        "cannot start: exec: no such file",
        id="no such program",
    ),
    pytest.param({"limiter": crashed(exitCode=2)}, "LimiterCrashing", "the limiter of pod smol-1", id="limiter crash"),
]


@pytest.mark.parametrize(("pod", "reason", "words"), TROUBLES)
def test_trouble_has_a_reason_and_says_what_is_wrong(make_pod, pod, reason, words):
    trouble = trouble_of([make_pod(**pod)])
    assert trouble is not None
    assert trouble.reason == reason
    assert words in trouble.message
    assert not trouble.stalled


HEALTHY = [
    pytest.param({}, id="nothing known"),
    pytest.param({"engine": waiting("ContainerCreating")}, id="being made"),
    pytest.param({"engine": {"state": {"running": {}}, "started": False}}, id="loading"),
    pytest.param(
        {"engine": {"state": {"running": {}}, "ready": True, "lastState": {"terminated": {"exitCode": 1}}}},
        id="recovered",
    ),
    pytest.param({"deleted": True, "engine": crashed(exitCode=143)}, id="leaving"),
]


@pytest.mark.parametrize("pod", HEALTHY)
def test_no_trouble(make_pod, pod):
    assert trouble_of([make_pod(**pod)]) is None


ROOM = {"reason": "Unschedulable"}
BY_URGENCY = [
    ("ImagePullFailed", {"engine": waiting("ErrImagePull", "gone")}),
    ("PodsRefused", {"engine": waiting("CreateContainerConfigError")}),
    ("LimiterCrashing", {"limiter": crashed(exitCode=1)}),
    ("EngineCrashing", {"engine": crashed(exitCode=1)}),
    ("WaitingForVolume", {"scheduled": ROOM | {"message": 'persistentvolumeclaim "models" not found'}}),
    ("NoFreeAccelerator", {"scheduled": ROOM | {"message": "2 Insufficient nvidia.com/gpu."}}),
    ("Unschedulable", {"scheduled": ROOM | {"message": "2 Insufficient memory."}}),
]


@pytest.mark.parametrize("first", range(len(BY_URGENCY)), ids=[reason for reason, _ in BY_URGENCY])
def test_the_trouble_that_passes_least_by_itself_is_told(make_pod, first):
    pods = [make_pod(f"pod-{9 - number}", **pod) for number, (_, pod) in enumerate(BY_URGENCY)]
    assert trouble_of(pods[first:]).reason == BY_URGENCY[first][0]


def test_the_same_pods_in_another_order_give_the_same_message(make_pod):
    pods = [make_pod(name, engine=crashed(exitCode=1)) for name in ("b", "a", "c")]
    assert trouble_of(pods) == trouble_of(pods[::-1])
    assert "pod a" in trouble_of(pods).message


def test_long_words_are_cut(make_pod):
    trouble = trouble_of([make_pod(engine=crashed(exitCode=1, message="x" * 5000))])
    assert len(trouble.message) < LONGEST_QUOTE + 100


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"state": {"running": {}}, "started": False}, True),
        ({"state": {"running": {}}, "started": True}, False),
        (waiting("ContainerCreating"), False),
    ],
    ids=["running, not started", "started", "not running"],
)
def test_loading_is_an_engine_that_runs_and_has_not_started(make_pod, state, expected):
    assert is_loading([make_pod(engine=state)]) is expected
