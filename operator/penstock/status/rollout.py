"""How far a backend's Deployment is, and what its controller says is wrong."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.api.conditions import Reason
from penstock.resources.objects import Object
from penstock.status.trouble import Trouble


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """The Deployment's own numbers.

    Attributes:
        seen: Whether the Deployment controller has ever reported on it.
        current: Whether its report speaks about the newest generation.
        replicas: Pods that exist and are not leaving.
        ready: Of these, those that can serve.
        updated: Of these, those that run the newest template.
        deadline_exceeded: Whether the rollout has not moved for longer than it may.
    """

    seen: bool
    current: bool
    replicas: int
    ready: int
    updated: int
    deadline_exceeded: bool

    def complete(self, wanted: int) -> bool:
        """Tell whether exactly the wanted replicas exist, all of them new and ready."""
        return self.current and self.replicas == self.updated == self.ready == wanted


def rollout_of(deployment: Object | None) -> Rollout:
    """Read the numbers; a Deployment that does not exist counts as one nobody has reported on."""
    deployment = deployment or {"metadata": {}}
    status = deployment.get("status", {})
    generation = deployment["metadata"].get("generation", 0)
    observed = status.get("observedGeneration", 0)
    progressing = _condition(deployment, "Progressing")
    return Rollout(
        seen=observed > 0,
        current=observed > 0 and observed >= generation,
        replicas=status.get("replicas", 0),
        ready=status.get("availableReplicas", 0),
        updated=status.get("updatedReplicas", 0),
        deadline_exceeded=(
            progressing.get("status") == "False" and progressing.get("reason") == "ProgressDeadlineExceeded"
        ),
    )


def trouble_of(deployment: Object | None) -> Trouble | None:
    """Return why the cluster refuses to make pods, if it does."""
    failure = _condition(deployment or {}, "ReplicaFailure")
    if failure.get("status") != "True":
        return None
    message = str(failure.get("message", ""))
    if "exceeded quota" in message:
        return Trouble(reason=Reason.QUOTA_EXCEEDED, message=f"a ResourceQuota leaves no room for the pods: {message}")
    return Trouble(reason=Reason.PODS_REFUSED, message=f"the cluster refuses the pods: {message}")


def _condition(deployment: Object, condition_type: str) -> Object:
    for condition in deployment.get("status", {}).get("conditions", ()):
        if condition["type"] == condition_type:
            return dict(condition)
    return {}
