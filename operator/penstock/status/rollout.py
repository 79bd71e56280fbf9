"""How far a backend's Deployment is, in its own controller's numbers."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.resources.objects import Object
from penstock.status.shapes import mappings, number


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """The Deployment's own numbers.

    Attributes:
        seen: Whether the Deployment controller has ever reported on it.
        current: Whether its report speaks about the newest generation.
        replicas: Pods that exist and are not leaving.
        ready: Of these, those that can serve. Not the Deployment's `availableReplicas`, which count only after they
            have been ready for a while: clients reach a replica as soon as it is ready.
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

    def count(self, wanted: int) -> str:
        """Return how many replicas are ready of how many; all conditions say it in these words."""
        if self.ready > wanted:
            return f"{self.ready} replicas ready, {wanted} wanted"
        return f"{self.ready} of {wanted} replicas ready"


def rollout_of(deployment: Object | None) -> Rollout:
    """Read the numbers; a Deployment that does not exist counts as one nobody has reported on."""
    observed = number(deployment, "status", "observedGeneration")
    return Rollout(
        seen=observed > 0,
        current=observed > 0 and observed >= number(deployment, "metadata", "generation"),
        replicas=number(deployment, "status", "replicas"),
        ready=number(deployment, "status", "readyReplicas"),
        updated=number(deployment, "status", "updatedReplicas"),
        deadline_exceeded=any(
            (condition.get("type"), condition.get("status"), condition.get("reason"))
            == ("Progressing", "False", "ProgressDeadlineExceeded")
            for condition in mappings(deployment, "status", "conditions")
        ),
    )
