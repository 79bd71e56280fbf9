"""What a backend's Deployment is doing, as far as others have to know before they replace replicas of their own."""

from __future__ import annotations

from enum import StrEnum

from penstock.resources.objects import Object

_COMPLETE = "NewReplicaSetAvailable"
_GIVEN_UP = "ProgressDeadlineExceeded"


class Phase(StrEnum):
    """One of four; `pacing` says what follows from each."""

    SETTLED = "Settled"
    """Nothing is being replaced, or nobody waits for it any more."""

    CHANGING = "Changing"
    """Replicas are being replaced because a user changed the spec."""

    UPGRADING = "Upgrading"
    """Replicas are being replaced because Penstock renders them differently now."""

    FAILING = "Failing"
    """The same, and the new replicas are in trouble."""


def phase_of(deployment: Object | None, *, upgrade: bool, trouble: bool) -> Phase:
    """Return the phase.

    Replicas that are lost after a rollout has come to its end, or that are added, are no rollout: the Deployment
    controller keeps the reason it gave at the end.

    Args:
        deployment: As observed; None when there is none.
        upgrade: Whether its template replaced one for the same spec.
        trouble: Whether its pods are in trouble.
    """
    if deployment is None or _settled(deployment):
        return Phase.SETTLED
    given_up = _progressing(deployment) == _GIVEN_UP
    if upgrade:
        return Phase.FAILING if trouble or given_up else Phase.UPGRADING
    # A user's rollout may never end; it is no fault of an upgrade, and the upgrades go on without it.
    return Phase.SETTLED if given_up else Phase.CHANGING


def _settled(deployment: Object) -> bool:
    status = deployment.get("status", {})
    generation = deployment["metadata"].get("generation", 0)
    if not generation <= status.get("observedGeneration", 0):
        return False
    replicas, wanted = status.get("replicas", 0), deployment["spec"].get("replicas", 1)
    if replicas != status.get("updatedReplicas", 0):
        return False
    return _progressing(deployment) == _COMPLETE or replicas == status.get("availableReplicas", 0) == wanted


def _progressing(deployment: Object) -> str:
    for condition in deployment.get("status", {}).get("conditions", ()):
        if condition["type"] == "Progressing":
            return str(condition.get("reason", ""))
    return ""
