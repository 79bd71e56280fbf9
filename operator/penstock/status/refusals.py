"""Why the cluster refuses to make pods, as the Deployment's controller reports it.

The ReplicaSet's controller meets the refusal, and the Deployment's controller carries it up as `ReplicaFailure`, word
for word. So ReplicaSets need not be watched.

What refuses is an object of the namespace that somebody can change. Nothing tells the ReplicaSet's controller of that
change: it tries again after delays that grow to a quarter of an hour. So the obstacle is named here, for
`reconcile.obstacles` to watch over it and to end the wait.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

from penstock.api.conditions import Reason
from penstock.resources.objects import Object
from penstock.status.shapes import mappings, text
from penstock.status.trouble import Trouble
from penstock.status.words import quote


class Gate(Enum):
    """What kind of object refuses pods."""

    QUOTA = auto()
    """A ResourceQuota."""

    LIMIT_RANGE = auto()
    """A LimitRange."""

    POD_SECURITY = auto()
    """The labels of the namespace."""


@dataclass(frozen=True)
class Obstacle:
    """What must change before pods can be made.

    Attributes:
        gate: Its kind.
        name: Its name, where the refusal tells it: quotas only.
        resources: What it has too little of: quotas only.
    """

    gate: Gate
    name: str = ""
    resources: tuple[str, ...] = ()


_POD_NAME = re.compile(r'^pods? "[^"]*" is (?:forbidden|invalid): ', re.IGNORECASE)
_QUOTA = re.compile(r"exceeded quota: (?P<name>[^,\s]+)(?:, requested: (?P<requested>\S+))?")
_LIMIT_RANGE = re.compile(
    r"(?:maximum|minimum) \S+ usage per (?:Pod|Container)|limit to request ratio per (?:Pod|Container)|"
    # A limit that a LimitRange has set by default, below what is requested.
    r"must be less than or equal to \S+ limit"
)
_POD_SECURITY = re.compile(r"violates PodSecurity")
_MUST_SPECIFY = re.compile(r"failed quota: [^:]+: must specify")


def trouble_of(deployment: Object | None) -> Trouble | None:
    """Return why no pods are made, if the cluster refuses them."""
    refusal = refusal_of(deployment)
    if not refusal:
        return None
    # The pod's name is another one in each try.
    words = quote(_POD_NAME.sub("", refusal))
    if _QUOTA.search(refusal):
        return Trouble(reason=Reason.QUOTA_EXCEEDED, message=f"a ResourceQuota leaves no room for the pods: {words}")
    if _MUST_SPECIFY.search(refusal):
        text_ = f"a ResourceQuota demands more of `spec.resources` and `spec.limiter.resources`: {words}"
        return Trouble(reason=Reason.QUOTA_EXCEEDED, message=text_)
    if _LIMIT_RANGE.search(refusal):
        return Trouble(reason=Reason.PODS_REFUSED, message=f"a LimitRange of the namespace refuses the pods: {words}")
    if _POD_SECURITY.search(refusal):
        return Trouble(reason=Reason.PODS_REFUSED, message=f"the namespace's Pod Security refuses the pods: {words}")
    return Trouble(reason=Reason.PODS_REFUSED, message=f"the cluster refuses the pods: {words}")


def obstacle_of(deployment: Object | None) -> Obstacle | None:
    """Return what stands in the way of pods, if it is an object whose change can be seen."""
    refusal = refusal_of(deployment)
    quota = _QUOTA.search(refusal)
    if quota is not None:
        requested = (quota["requested"] or "").split(",")
        return Obstacle(Gate.QUOTA, quota["name"], tuple(entry.partition("=")[0] for entry in requested if entry))
    if _LIMIT_RANGE.search(refusal):
        return Obstacle(Gate.LIMIT_RANGE)
    if _POD_SECURITY.search(refusal):
        return Obstacle(Gate.POD_SECURITY)
    return None


def refusal_of(deployment: Object | None) -> str:
    """Return the refusal in the words of who refuses; empty when pods are made."""
    for condition in mappings(deployment, "status", "conditions"):
        if (condition.get("type"), condition.get("status")) == ("ReplicaFailure", "True"):
            return text(condition, "message") or text(condition, "reason") or "no reason is given"
    return ""
