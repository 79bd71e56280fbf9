"""What is wrong with a backend's pods, read from their status, so that nobody needs `kubectl describe pod`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from penstock.api.conditions import Reason
from penstock.resources.deployment import CONTAINER as ENGINE
from penstock.resources.limiter import CONTAINER as LIMITER
from penstock.resources.objects import Object, is_terminating
from penstock.status.trouble import Trouble

IMAGE_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
REFUSED_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError"})
CRASHED_REASONS = frozenset({"CrashLoopBackOff", "RunContainerError"})

CRASHING = {ENGINE: Reason.ENGINE_CRASHING, LIMITER: Reason.LIMITER_CRASHING}

URGENCY = (
    Reason.IMAGE_PULL_FAILED,
    Reason.PODS_REFUSED,
    Reason.LIMITER_CRASHING,
    Reason.ENGINE_CRASHING,
    Reason.WAITING_FOR_VOLUME,
    Reason.NO_FREE_ACCELERATOR,
    Reason.UNSCHEDULABLE,
)
"""Which trouble is told when pods have several: the one that least likely passes by itself comes first."""

LONGEST_QUOTE = 300
"""Characters of an engine's own words that go into a message."""

_VOLUME = re.compile(r"persistentvolumeclaim|PersistentVolume|volume node affinity", re.IGNORECASE)
_ACCELERATOR = re.compile(r"Insufficient ([a-z0-9.-]+/[A-Za-z0-9._-]*(?:gpu|mig-|gaudi|i915|xe)[A-Za-z0-9._-]*)")


def trouble_of(pods: Iterable[Object]) -> Trouble | None:
    """Return the most urgent trouble of the pods that are not leaving; None when there is none."""
    troubles = [
        trouble
        for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))
        if not is_terminating(pod) and (trouble := _of_pod(pod)) is not None
    ]
    return min(troubles, key=lambda trouble: URGENCY.index(trouble.reason), default=None)


def is_loading(pods: Iterable[Object]) -> bool:
    """Tell whether an engine runs that has not served yet: it loads its model."""
    return any(
        status.get("name") == ENGINE and "running" in status.get("state", {}) and not status.get("started")
        for pod in pods
        if not is_terminating(pod)
        for status in _containers(pod)
    )


def _of_pod(pod: Object) -> Trouble | None:
    name = pod["metadata"]["name"]
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return _unschedulable(str(condition.get("message", "")))
    for status in _containers(pod):
        trouble = _of_container(name, status)
        if trouble is not None:
            return trouble
    return None


def _containers(pod: Object) -> Sequence[Object]:
    status = pod.get("status", {})
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def _of_container(pod: str, status: Object) -> Trouble | None:
    container = status["name"]
    state = status.get("state", {})
    waiting = state.get("waiting", {})
    reason = str(waiting.get("reason", ""))
    if reason in IMAGE_REASONS:
        cause = _quote(waiting.get("message", "")) or reason
        return Trouble(
            reason=Reason.IMAGE_PULL_FAILED, message=f"image {status.get('image', '')} of the {container}: {cause}"
        )
    if reason in REFUSED_REASONS:
        cause = _quote(waiting.get("message", "")) or reason
        return Trouble(reason=Reason.PODS_REFUSED, message=f"the {container} of pod {pod} cannot be made: {cause}")
    if container not in CRASHING or status.get("ready"):
        return None
    ended = state.get("terminated") or status.get("lastState", {}).get("terminated")
    if ended is not None:
        return Trouble(reason=CRASHING[container], message=f"the {container} of pod {pod} {_ending(ended)}")
    if reason in CRASHED_REASONS:
        cause = _quote(waiting.get("message", "")) or reason
        return Trouble(reason=CRASHING[container], message=f"the {container} of pod {pod} cannot start: {cause}")
    return None


def _ending(terminated: Object) -> str:
    code = terminated.get("exitCode")
    if terminated.get("reason") == "OOMKilled":
        return "was killed because it used more memory than its limit; raise `spec.resources.limits.memory`"
    last_words = _quote(_last_line(str(terminated.get("message", ""))))
    return f"ended with exit code {code}" + (f": {last_words}" if last_words else "")


def _unschedulable(message: str) -> Trouble:
    accelerator = _ACCELERATOR.search(message)
    if accelerator is not None:
        text = f"no node has a free {accelerator[1].rstrip('.')}: {_quote(message)}"
        return Trouble(reason=Reason.NO_FREE_ACCELERATOR, message=text)
    if _VOLUME.search(message):
        return Trouble(reason=Reason.WAITING_FOR_VOLUME, message=_quote(message))
    return Trouble(reason=Reason.UNSCHEDULABLE, message=f"no node can take a replica: {_quote(message)}")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _quote(text: object) -> str:
    words = " ".join(str(text).split())
    return words if len(words) <= LONGEST_QUOTE else words[: LONGEST_QUOTE - 1] + "…"
