"""What is worth a write and what is worth an Event."""

import pytest

from penstock.status.change import Change, change, transition


def condition(kind="Ready", status="False", reason="Scaling", message="0 of 1", **more):
    return {"type": kind, "status": status, "reason": reason, "message": message, **more}


def status(*conditions, **fields):
    return {"observedGeneration": 1, "replicas": 1, "conditions": list(conditions or (condition(),))} | fields


READY = condition(status="True", reason="AllReplicasReady")
FOREIGN = condition("example.com/Approved", "True", "Approved")

CHANGES = [
    pytest.param(status(), status(), Change.NONE, id="nothing"),
    pytest.param(status(condition(), FOREIGN), status(), Change.NONE, id="somebody's condition"),
    pytest.param(status(FOREIGN, condition()), status(), Change.NONE, id="somebody's condition before ours"),
    pytest.param(status(fromAnotherRelease=1), status(), Change.NONE, id="a field nobody here knows"),
    pytest.param(status(replicas=2), status(), Change.MINOR, id="a number"),
    pytest.param(status(), status(condition(message="1 of 2")), Change.MINOR, id="a message"),
    pytest.param(status(), status(condition(reason="RollingOut")), Change.MINOR, id="a reason"),
    pytest.param(status(engineVersion="1"), status(), Change.MINOR, id="a field of ours that is gone"),
    pytest.param(status(), status(READY), Change.MAJOR, id="a condition's status"),
    pytest.param(status(), status(condition(), condition("Stalled", "True")), Change.MAJOR, id="one condition more"),
    pytest.param(status(), status(observedGeneration=2), Change.MAJOR, id="the generation"),
    pytest.param({}, status(), Change.MAJOR, id="first sight"),
]


@pytest.mark.parametrize(("previous", "new", "expected"), CHANGES)
def test_how_much_has_changed(previous, new, expected):
    assert change(previous, new) is expected


def ready(reason, value="False"):
    return status(condition(status=value, reason=reason, message=f"because of {reason}"))


TRANSITIONS = [
    pytest.param({}, ready("Progressing", "Unknown"), None, id="first sight is no news"),
    pytest.param(ready("Progressing", "Unknown"), ready("Scaling"), None, id="a step on the way is no news"),
    pytest.param(ready("Scaling"), ready("AllReplicasReady", "True"), ("AllReplicasReady", False), id="ready"),
    pytest.param(ready("AllReplicasReady", "True"), ready("RollingOut"), ("RollingOut", False), id="a rollout begins"),
    pytest.param(ready("Scaling"), ready("EngineCrashing"), ("EngineCrashing", True), id="trouble"),
    pytest.param(ready("EngineCrashing"), ready("QuotaExceeded"), ("QuotaExceeded", True), id="another trouble"),
    pytest.param(ready("EngineCrashing"), ready("EngineCrashing"), None, id="the same trouble"),
    pytest.param(ready("EngineCrashing"), ready("WaitingForModel"), None, id="trouble ends, and ready is not yet"),
]


@pytest.mark.parametrize(("previous", "new", "expected"), TRANSITIONS)
def test_what_is_announced(previous, new, expected):
    found = transition(previous, new)
    assert (found and (found.reason, found.warning)) == expected
    assert found is None or found.message == f"because of {expected[0]}"
