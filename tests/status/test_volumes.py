"""Claims that are missing, unbound or too narrow, and what kubelet tells of mounts that fail."""

import pytest

from penstock.status.volumes import claim_names, trouble_of_claims, trouble_of_events


def claim(*modes, phase="Bound", storage_class="", deleted=False):
    metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}
    spec = {"accessModes": list(modes), "storageClassName": storage_class}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


UNBOUND = {"reason": "Unschedulable", "message": "pod has unbound immediate PersistentVolumeClaims"}
AFFINITY = {"reason": "Unschedulable", "message": "1 node(s) had volume node affinity conflict"}
STUCK = {"conditions": {"PodScheduled": "True"}}


def on(host, phase="Running"):
    return {"hostIP": host, "phase": phase}


CLAIMS = [
    pytest.param(None, [{}], 1, "WaitingForVolume", "models does not exist; make it", False, id="missing"),
    pytest.param(
        claim("ReadWriteOnce", deleted=True), [{}], 1, "WaitingForVolume", "is being deleted", False, id="being deleted"
    ),
    pytest.param(claim(phase="Lost"), [{}], 1, "WaitingForVolume", "is gone", False, id="volume lost"),
    pytest.param(
        claim("ReadWriteMany", phase="Pending", storage_class="fast"),
        [{"scheduled": UNBOUND}],
        1,
        "WaitingForVolume",
        "models (storage class fast) has no volume yet",
        False,
        id="unbound",
    ),
    pytest.param(
        claim("ReadWriteOncePod"), [{}], 2, "VolumeNotShared", "serves one pod", True, id="one pod, two replicas"
    ),
    pytest.param(
        claim("ReadWriteOnce"),
        [{"status": on("10.0.0.1")}, STUCK | {"status": on("10.0.0.2", "Pending")}],
        2,
        "VolumeNotShared",
        "serves one node (ReadWriteOnce), the replicas are on 2; use a claim with ReadWriteMany",
        True,
        id="one node, replicas on two",
    ),
    pytest.param(
        claim("ReadWriteOnce"),
        [{"status": on("10.0.0.1")}, {"scheduled": AFFINITY}],
        2,
        "VolumeNotShared",
        "which cannot take all 2 replicas",
        False,
        id="one node, no room on it",
    ),
]


@pytest.mark.parametrize(("found", "pods", "wanted", "reason", "words", "stalled"), CLAIMS)
def test_a_claim_that_holds_replicas_up(make_pod, found, pods, wanted, reason, words, stalled):
    pods = [make_pod(f"pod-{number}", **pod) for number, pod in enumerate(pods)]
    trouble = trouble_of_claims({"models": found}, pods, events=[event("FailedAttachVolume", "x")], wanted=wanted)
    assert (trouble.reason, trouble.stalled) == (reason, stalled)
    assert words in trouble.message


FINE = [
    pytest.param(claim("ReadWriteMany"), [{"status": on("a")}, {"status": on("b")}], id="shared"),
    pytest.param(claim("ReadWriteOnce"), [{"status": on("a")}, {"status": on("a")}], id="one node, all on it"),
    pytest.param(
        claim("ReadWriteOnce"),
        [{"status": on("a")}, STUCK | {"status": on("b", "Pending")}],
        id="a replica on another node is being made, and nobody has said that it cannot",
    ),
    pytest.param(claim("ReadWriteMany", phase="Pending"), [{}], id="waits for its first pod"),
    pytest.param(claim(), [], id="nothing known"),
]


@pytest.mark.parametrize(("found", "pods"), FINE)
def test_a_claim_that_holds_nobody_up(make_pod, found, pods):
    pods = [make_pod(f"pod-{number}", **pod) for number, pod in enumerate(pods)]
    assert trouble_of_claims({"models": found}, pods, wanted=2) is None


def test_a_pod_that_leaves_does_not_make_a_claim_too_narrow(make_pod):
    leaving = make_pod("a", deleted=True, status=on("10.0.0.1"))
    coming = make_pod("b", **STUCK, status=on("10.0.0.2", "Pending"))
    events = [event("FailedAttachVolume", "Multi-Attach error")]
    assert trouble_of_claims({"models": claim("ReadWriteOnce")}, [leaving, coming], events=events, wanted=1) is None


def event(reason, message, time="2026-01-01T00:00:00Z"):
    return {
        "reason": reason,
        "message": message,
        "lastTimestamp": time,
        "involvedObject": {"kind": "Pod", "name": "smol-1"},
    }


SECRET = 'MountVolume.SetUp failed for volume "keys" : secret "tenants" not found'
EVENTS = [
    pytest.param(
        [event("FailedMount", SECRET)],
        "WaitingForVolume",
        'volume keys of a replica cannot be mounted: secret "tenants" not found',
        id="missing Secret",
    ),
    pytest.param(
        [event("FailedMount", 'MountVolume.SetUp failed for volume "x" : configmap "settings" not found')],
        "WaitingForVolume",
        'volume x of a replica cannot be mounted: configmap "settings" not found',
        id="missing ConfigMap",
    ),
    pytest.param(
        [event("FailedMount", SECRET), event("FailedMount", "Unable to attach or mount volumes: timed out", "2027")],
        "WaitingForVolume",
        'volume keys of a replica cannot be mounted: secret "tenants" not found',
        id="the cause, not kubelet's summary after it",
    ),
    pytest.param(
        [event("FailedAttachVolume", "Multi-Attach error for volume pvc-1")],
        "WaitingForVolume",
        "a volume of pod smol-1 cannot be mounted: Multi-Attach error for volume pvc-1",
        id="attached elsewhere",
    ),
    pytest.param(
        [event("FailedCreatePodSandBox", "no such runtime class")],
        "PodsRefused",
        "pod smol-1 cannot be made: no such runtime class",
        id="no sandbox",
    ),
]


@pytest.mark.parametrize(("events", "reason", "message"), EVENTS)
def test_what_kubelet_tells_of_a_stuck_pod(events, reason, message):
    trouble = trouble_of_events(events)
    assert (trouble.reason, trouble.message) == (reason, message)


@pytest.mark.parametrize(
    "events", [[], [event("Unhealthy", "startup probe failed")]], ids=["no event", "another matter"]
)
def test_no_cause_in_events(events):
    assert trouble_of_events(events) is None


def test_the_claims_that_a_spec_names(make_backend):
    volume = {"name": "more", "persistentVolumeClaim": {"claimName": "more"}}
    source = {"huggingFace": {"repository": "o/m", "file": "m.gguf"}}
    cache = {"persistentVolumeClaim": {"claimName": "cache"}}
    backend = make_backend(model={"name": "m", "source": source, "cache": cache}, pod={"volumes": [volume]})
    assert claim_names(backend) == ("cache", "more")
    claim_source = {"persistentVolumeClaim": {"claimName": "models", "path": "/m.gguf"}}
    assert claim_names(make_backend(model={"name": "m", "source": claim_source})) == ("models",)
    assert claim_names(make_backend()) == ()
