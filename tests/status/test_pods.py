"""Each trouble of a pod has its reason and a message a user can act on."""

import pytest

from penstock.status.pods import is_downloading, is_loading, is_stuck, trouble_of


def waiting(reason, message=""):
    return {"state": {"waiting": {"reason": reason, "message": message}}}


def crashed(**terminated):
    return waiting("CrashLoopBackOff") | {"lastState": {"terminated": terminated}, "restartCount": 2, "ready": False}


GPU = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: 0/2 nodes are available: 2 No preemption"

TROUBLES = [
    pytest.param(
        {"scheduled": {"reason": "Unschedulable", "message": GPU}},
        "NoFreeAccelerator",
        "no node has a free nvidia.com/gpu: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
        id="no GPU",
    ),
    pytest.param(
        {"scheduled": {"reason": "Unschedulable", "message": "2 Insufficient nvidia.com/mig-1g.10gb."}},
        "NoFreeAccelerator",
        "no node has a free nvidia.com/mig-1g.10gb: 2 Insufficient nvidia.com/mig-1g.10gb.",
        id="no GPU slice",
    ),
    pytest.param(
        {"scheduled": {"reason": "Unschedulable", "message": "0/2 nodes are available: 2 Insufficient memory."}},
        "Unschedulable",
        "no node can take a replica: 0/2 nodes are available: 2 Insufficient memory.",
        id="no memory",
    ),
    pytest.param(
        {
            "scheduled": {
                "reason": "Unschedulable",
                "message": "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.",
            }
        },
        "Unschedulable",
        "no node can take a replica: 0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.",
        id="no node with the label",
    ),
    pytest.param(
        {"scheduled": {"reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty gates"}},
        "Unschedulable",
        "no node can take a replica: Scheduling is blocked due to non-empty gates",
        id="held back by a gate",
    ),
    pytest.param(
        {"scheduled": {"reason": "Unschedulable", "message": 'persistentvolumeclaim "models" not found'}},
        "WaitingForVolume",
        'persistentvolumeclaim "models" not found',
        id="no claim",
    ),
    pytest.param(
        {"status": {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed: no device"}},
        "PodsRefused",
        "the node of a replica has refused it: UnexpectedAdmissionError: Allocate failed: no device",
        id="refused by the node",
    ),
    pytest.param(
        {"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}},
        "PodsRefused",
        "the node of a replica has refused it: Evicted: The node was low on resource: memory.",
        id="evicted by the node",
    ),
    pytest.param(
        {"conditions": {"Ready": "False", "ContainersReady": "True"}, "status": {"hostIP": "10.0.0.2"}},
        "NodeLost",
        "the node 10.0.0.2 of pod smol-1 does not answer",
        id="silent node",
    ),
    pytest.param(
        {"status": {"reason": "NodeLost"}},
        "NodeLost",
        "the node of pod smol-1 does not answer",
        id="lost node",
    ),
]


@pytest.mark.parametrize(("pod", "reason", "message"), TROUBLES)
def test_trouble_has_a_reason_and_says_what_is_wrong(make_pod, pod, reason, message):
    trouble = trouble_of([make_pod(**pod)])
    assert (trouble.reason, trouble.message, trouble.stalled) == (reason, message, False)


HEALTHY = [
    pytest.param({}, id="nothing known"),
    pytest.param({"engine": waiting("ContainerCreating")}, id="being made"),
    pytest.param({"engine": {"state": {"running": {}}, "started": False}}, id="loading"),
    pytest.param(
        {"engine": {"state": {"running": {}}, "ready": True, "lastState": {"terminated": {"exitCode": 1}}}},
        id="recovered",
    ),
    pytest.param({"deleted": True, "engine": crashed(exitCode=143)}, id="leaving"),
    pytest.param(
        {"conditions": {"PodScheduled": "True", "Ready": "False", "ContainersReady": "False"}}, id="not ready"
    ),
    pytest.param({"download": {"state": {"terminated": {"exitCode": 0}}, "ready": True}}, id="downloaded"),
    pytest.param({"download": {"state": {"terminated": {"exitCode": 0}}}}, id="downloaded a moment ago"),
]


@pytest.mark.parametrize("pod", HEALTHY)
def test_no_trouble(make_pod, pod):
    assert trouble_of([make_pod(**pod)]) is None


ROOM = {"reason": "Unschedulable"}
BY_URGENCY = [
    ("ImagePullFailed", {"engine": waiting("ErrImagePull", "gone")}),
    ("PodsRefused", {"engine": waiting("CreateContainerConfigError")}),
    ("DownloadFailed", {"download": crashed(exitCode=1)}),
    ("LimiterCrashing", {"limiter": crashed(exitCode=1)}),
    ("EngineCrashing", {"engine": crashed(exitCode=1)}),
    ("WaitingForVolume", {"scheduled": ROOM | {"message": 'persistentvolumeclaim "models" not found'}}),
    ("NoFreeAccelerator", {"scheduled": ROOM | {"message": "2 Insufficient nvidia.com/gpu."}}),
    ("Unschedulable", {"scheduled": ROOM | {"message": "2 Insufficient memory."}}),
    ("NodeLost", {"status": {"reason": "NodeLost"}}),
]


@pytest.mark.parametrize("first", range(len(BY_URGENCY)), ids=[reason for reason, _ in BY_URGENCY])
def test_the_trouble_that_passes_least_by_itself_is_told(make_pod, first):
    pods = [make_pod(f"pod-{9 - number}", **pod) for number, (_, pod) in enumerate(BY_URGENCY)]
    assert trouble_of(pods[first:]).reason == BY_URGENCY[first][0]


def test_the_same_pods_in_another_order_give_the_same_message(make_pod):
    pods = [make_pod(name, engine=crashed(exitCode=1)) for name in ("b", "a", "c")]
    assert trouble_of(pods) == trouble_of(pods[::-1])
    assert "pod a" in trouble_of(pods).message


def test_the_pods_of_a_template_that_is_being_replaced_are_no_news(make_pod):
    old = make_pod("a", template="old", created="2026-01-01T00:00:00Z", engine=crashed(exitCode=1))
    new = make_pod("b", created="2026-01-01T00:00:01Z", engine={"state": {"running": {}}, "started": False})
    assert trouble_of([old, new]) is None
    assert is_loading([old, new])
    assert trouble_of([old]).reason == "EngineCrashing"


def test_a_pod_that_a_node_has_refused_is_no_news_when_there_is_a_newer_one(make_pod):
    refused = make_pod("a", status={"phase": "Failed", "reason": "Evicted"})
    newer = make_pod("b", created="2026-01-01T00:00:01Z", engine=waiting("ContainerCreating"))
    assert trouble_of([refused, newer]) is None


def test_a_readiness_gate_of_somebody_else_is_no_lost_node(make_pod):
    pod = make_pod(conditions={"ContainersReady": "True"})
    pod["status"]["conditions"].append({"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"})
    assert trouble_of([pod]) is None


PLACED = {"conditions": {"PodScheduled": "True"}, "status": {"phase": "Pending"}}
STUCK = [
    pytest.param(PLACED | {"engine": waiting("ContainerCreating")}, True, id="nothing has come to life"),
    pytest.param({"status": {"phase": "Pending"}, "engine": waiting("ContainerCreating")}, False, id="no node yet"),
    pytest.param(PLACED | {"limiter": {"state": {"running": {}}}}, False, id="a container runs"),
    pytest.param(PLACED | {"download": {"state": {"terminated": {"exitCode": 0}}}}, False, id="a container has ended"),
    pytest.param(PLACED | {"engine": waiting("ErrImagePull")}, False, id="its status says why"),
    pytest.param(PLACED | {"deleted": True}, False, id="leaving"),
]


@pytest.mark.parametrize(("pod", "expected"), STUCK)
def test_stuck_is_a_pod_whose_status_does_not_say_why_nothing_runs(make_pod, pod, expected):
    assert is_stuck(make_pod(**pod)) is expected


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


def test_a_download_that_runs_is_told_from_one_that_has_ended(make_pod):
    assert is_downloading([make_pod(download={"state": {"running": {}}})])
    assert not is_downloading([make_pod(download={"state": {"terminated": {"exitCode": 0}}})])
