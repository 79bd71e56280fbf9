"""What a Deployment is doing, read from what its controller writes."""

import pytest

from penstock.rollout.phase import Phase, phase_of


def deployment(*, generation=3, observed=3, wanted=2, replicas=2, updated=2, available=2, reason="ReplicaSetUpdated"):
    return {
        "metadata": {"generation": generation},
        "spec": {"replicas": wanted},
        "status": {
            "observedGeneration": observed,
            "replicas": replicas,
            "updatedReplicas": updated,
            "availableReplicas": available,
            "conditions": [{"type": "Available"}, {"type": "Progressing", "reason": reason}],
        },
    }


COMPLETE = "NewReplicaSetAvailable"
GIVEN_UP = "ProgressDeadlineExceeded"

SETTLED = {
    "no deployment": None,
    "complete": deployment(reason=COMPLETE),
    "complete by its numbers": deployment(),
    "a replica lost later": deployment(available=1, reason=COMPLETE),
    "replicas added later": deployment(wanted=5, replicas=5, updated=5, available=2, reason=COMPLETE),
    "scaled to zero": deployment(wanted=0, replicas=0, updated=0, available=0),
}


@pytest.mark.parametrize("found", SETTLED.values(), ids=SETTLED)
@pytest.mark.parametrize("upgrade", [True, False])
@pytest.mark.parametrize("trouble", [True, False])
def test_settled_is_what_replaces_nothing(found, upgrade, trouble):
    assert phase_of(found, upgrade=upgrade, trouble=trouble) is Phase.SETTLED


MOVING = {
    "never looked at": {**deployment(), "status": {}},
    "a template nobody has looked at": deployment(generation=4, reason=COMPLETE),
    "old replicas left": deployment(replicas=3, updated=1),
    "new replicas not ready": deployment(available=1),
}


@pytest.mark.parametrize("found", MOVING.values(), ids=MOVING)
def test_replacing_is_told_by_who_is_its_reason_and_how_it_goes(found):
    assert phase_of(found, upgrade=False, trouble=False) is Phase.CHANGING
    assert phase_of(found, upgrade=False, trouble=True) is Phase.CHANGING
    assert phase_of(found, upgrade=True, trouble=False) is Phase.UPGRADING
    assert phase_of(found, upgrade=True, trouble=True) is Phase.FAILING


def test_a_rollout_that_was_given_up_fails_as_an_upgrade_and_is_left_behind_as_a_change():
    found = deployment(replicas=3, updated=1, reason=GIVEN_UP)
    assert phase_of(found, upgrade=True, trouble=False) is Phase.FAILING
    assert phase_of(found, upgrade=False, trouble=False) is Phase.SETTLED
