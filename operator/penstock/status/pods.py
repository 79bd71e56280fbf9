"""What is wrong with a backend's pods, read from their status, so that nobody needs `kubectl describe pod`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from penstock.api.conditions import Reason
from penstock.resources.download import CONTAINER as DOWNLOAD
from penstock.resources.engine import CONTAINER as ENGINE
from penstock.resources.objects import Object
from penstock.status.containers import containers, runs
from penstock.status.containers import trouble_of as container_trouble
from penstock.status.shapes import flag, mapping, mappings, text
from penstock.status.trouble import Trouble
from penstock.status.words import quote

URGENCY = (
    Reason.IMAGE_PULL_FAILED,
    Reason.PODS_REFUSED,
    Reason.DOWNLOAD_FAILED,
    Reason.LIMITER_CRASHING,
    Reason.ENGINE_CRASHING,
    Reason.WAITING_FOR_VOLUME,
    Reason.NO_FREE_ACCELERATOR,
    Reason.UNSCHEDULABLE,
    Reason.NODE_LOST,
)
"""Which trouble is told when pods have several: the one that least likely passes by itself comes first."""

ENDED_PHASES = frozenset({"Failed", "Succeeded"})
NODE_LOST = "NodeLost"

TEMPLATE_HASH = "pod-template-hash"
"""Label by which the Deployment's controller tells the pods of one template from those of another."""

_VOLUME = re.compile(r"persistentvolumeclaim|PersistentVolume|volume node affinity", re.IGNORECASE)
_ACCELERATOR = re.compile(r"Insufficient ([a-z0-9.-]+/[A-Za-z0-9._-]*(?:gpu|mig-|gaudi|i915|xe)[A-Za-z0-9._-]*)")
_PREEMPTION = re.compile(r"\s*preemption: .*$", re.DOTALL)
"""That no other pod may be evicted in favour of ours is of no help, and longer than what is."""


def trouble_of(pods: Iterable[Object]) -> Trouble | None:
    """Return the most urgent trouble of the newest pods that are not leaving; None when there is none."""
    found = newest(pods)
    troubles = [trouble for pod in sorted(found, key=_name) if (trouble := _of_pod(pod)) is not None]
    return min(troubles, key=lambda trouble: URGENCY.index(trouble.reason), default=_refused_by_node(pods))


def newest(pods: Iterable[Object]) -> Sequence[Object]:
    """Return the pods of the newest template that run or are to run.

    While a broken template is being replaced, the trouble of its pods is no longer news. The pod that was made last
    has the newest template.
    """
    alive = [pod for pod in pods if not _leaving(pod) and text(pod, "status", "phase") not in ENDED_PHASES]
    if not alive:
        return []
    template = _template(max(alive, key=_age))
    return [pod for pod in alive if _template(pod) == template]


def is_loading(pods: Iterable[Object]) -> bool:
    """Tell whether an engine runs that has not served yet: it loads its model."""
    return any(
        runs(status, ENGINE) and not flag(status, "started") for pod in newest(pods) for status in containers(pod)
    )


def is_downloading(pods: Iterable[Object]) -> bool:
    """Tell whether a replica downloads its model."""
    return any(runs(status, DOWNLOAD) for pod in newest(pods) for status in containers(pod))


def waits_for_volume(pod: Object) -> bool:
    """Tell whether the scheduler waits for a volume of the pod."""
    trouble = _of_pod(pod)
    return trouble is not None and trouble.reason is Reason.WAITING_FOR_VOLUME


def is_stuck(pod: Object) -> bool:
    """Tell whether a pod has its node and none of its containers has come to life there, without saying why."""
    if _leaving(pod) or text(pod, "status", "phase") != "Pending" or _of_pod(pod) is not None:
        return False
    placed = _condition(pod, "PodScheduled").get("status") == "True"
    states = [mapping(status, "state") for status in containers(pod)]
    return placed and not any("running" in state or "terminated" in state for state in states)


def _of_pod(pod: Object) -> Trouble | None:
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") in ("Unschedulable", "SchedulingGated"):
        return _unschedulable(text(scheduled, "message"))
    name = _name(pod)
    for status in containers(pod):
        trouble = container_trouble(name, status)
        if trouble is not None:
            return trouble
    return _lost(pod)


def _lost(pod: Object) -> Trouble | None:
    """Recognise what the cluster writes when a kubelet is silent: not ready, though kubelet had said that all is."""
    ready = _condition(pod, "Ready")
    # A readiness gate of somebody else that is not open gives a reason; the cluster's own hand leaves none.
    silent = ready.get("status") == "False" and not ready.get("reason")
    contradicted = silent and _condition(pod, "ContainersReady").get("status") == "True"
    if not contradicted and text(pod, "status", "reason") != NODE_LOST:
        return None
    message = f"the node {text(pod, 'status', 'hostIP')} of pod {_name(pod)} does not answer"
    return Trouble(reason=Reason.NODE_LOST, message=" ".join(message.split()))


def _refused_by_node(pods: Iterable[Object]) -> Trouble | None:
    """Return why a node ended the pod that was made last before its containers did: evicted, or not admitted at all."""
    youngest = max((pod for pod in pods if not _leaving(pod)), key=_age, default=None)
    if youngest is None or text(youngest, "status", "phase") != "Failed" or not text(youngest, "status", "reason"):
        return None
    cause = quote(f"{text(youngest, 'status', 'reason')}: {text(youngest, 'status', 'message')}".removesuffix(": "))
    return Trouble(reason=Reason.PODS_REFUSED, message=f"the node of a replica has refused it: {cause}")


def _unschedulable(message: str) -> Trouble:
    words = quote(_PREEMPTION.sub("", message)) or "the scheduler gives no reason"
    accelerator = _ACCELERATOR.search(message)
    if accelerator is not None:
        text_ = f"no node has a free {accelerator[1].rstrip('.')}: {words}"
        return Trouble(reason=Reason.NO_FREE_ACCELERATOR, message=text_)
    if _VOLUME.search(message):
        return Trouble(reason=Reason.WAITING_FOR_VOLUME, message=words)
    return Trouble(reason=Reason.UNSCHEDULABLE, message=f"no node can take a replica: {words}")


def _condition(pod: Object, condition_type: str) -> Object:
    for condition in mappings(pod, "status", "conditions"):
        if condition.get("type") == condition_type:
            return condition
    return {}


def _leaving(pod: Object) -> bool:
    return "deletionTimestamp" in mapping(pod, "metadata")


def _name(pod: Object) -> str:
    return text(pod, "metadata", "name")


def _template(pod: Object) -> str:
    return text(pod, "metadata", "labels", TEMPLATE_HASH)


def _age(pod: Object) -> tuple[str, str]:
    """Order pods by when they were made: the API server's times are of one form and compare as text."""
    return text(pod, "metadata", "creationTimestamp"), _name(pod)
