"""What is wrong with a container, from its status in the pod.

A container that crashes is, in turn, waiting, running and ended. All three tell of the same trouble: between two
crashes the end of the last one is still in its status, so the reason does not come and go with every restart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock.api.conditions import Reason
from penstock.resources.download import CONTAINER as DOWNLOAD
from penstock.resources.engine import CONTAINER as ENGINE
from penstock.resources.limiter import CONTAINER as LIMITER
from penstock.resources.objects import Object
from penstock.status.shapes import flag, mapping, mappings, text
from penstock.status.trouble import Trouble
from penstock.status.words import cause_of, quote

IMAGE_REASONS = frozenset(
    {
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
REFUSED_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError", "PreCreateHookError"})
CRASHED_REASONS = frozenset({"CrashLoopBackOff", "RunContainerError", "PostStartHookError"})

CRASHING = {
    DOWNLOAD: Reason.DOWNLOAD_FAILED,
    ENGINE: Reason.ENGINE_CRASHING,
    LIMITER: Reason.LIMITER_CRASHING,
}
MEMORY_FIELDS = {
    DOWNLOAD: "`spec.resources.limits.memory`",
    ENGINE: "`spec.resources.limits.memory`",
    LIMITER: "`spec.limiter.resources.limits.memory`",
}

KILLED = 137
OUT_OF_MEMORY = "OOMKilled"

_BACK_OFF = re.compile(r'^Back-off pulling image "[^"]*":? *')
_PULL_WORD = re.compile(r"^(?:ErrImagePull|ImagePullBackOff): *")
_BAD_ARGUMENT = re.compile(
    r"unrecognized argument|invalid argument|unknown argument|ambiguous option|expected \w+ argument|invalid choice|"
    r"error while handling argument|error: argument ",
    re.IGNORECASE,
)


def containers(pod: Object) -> Sequence[Object]:
    """Return the statuses of a pod's containers, in the order in which they start."""
    return [*mappings(pod, "status", "initContainerStatuses"), *mappings(pod, "status", "containerStatuses")]


def trouble_of(pod: str, status: Object) -> Trouble | None:
    """Return what is wrong with a container of a pod, if anything is."""
    container = text(status, "name")
    waiting = text(status, "state", "waiting", "reason")
    cause = quote(text(status, "state", "waiting", "message"))
    if waiting in IMAGE_REASONS:
        return _unpulled(container, text(status, "image"), cause)
    if waiting in REFUSED_REASONS:
        message = f"the {container} of pod {pod} cannot be made: {cause or waiting}"
        return Trouble(reason=Reason.PODS_REFUSED, message=message)
    if container not in CRASHING or flag(status, "ready"):
        return None
    ended = mapping(status, "state", "terminated") or mapping(status, "lastState", "terminated")
    # An init container that ended well is done; whatever else ended, with 0 too, has left its work.
    if ended and not (container == DOWNLOAD and ended.get("exitCode") == 0):
        return Trouble(reason=CRASHING[container], message=f"the {container} of pod {pod} {_ending(container, ended)}")
    if waiting in CRASHED_REASONS:
        message = f"the {container} of pod {pod} cannot start: {cause or waiting}"
        return Trouble(reason=CRASHING[container], message=message)
    return None


def runs(status: Object, name: str) -> bool:
    """Tell whether this is that container and it runs."""
    return status.get("name") == name and isinstance(mapping(status, "state").get("running"), dict)


def _unpulled(container: str, image: str, cause: str) -> Trouble:
    # The two reasons that alternate while kubelet tries again say the same with other words in front, or, before
    # Kubernetes 1.32, with nothing behind them.
    cause = _PULL_WORD.sub("", _BACK_OFF.sub("", cause))
    message = f"image {image} of the {container} cannot be pulled" + (f": {cause}" if cause else "")
    return Trouble(reason=Reason.IMAGE_PULL_FAILED, message=message)


def _ending(container: str, terminated: Object) -> str:
    if text(terminated, "reason") == OUT_OF_MEMORY:
        field = MEMORY_FIELDS.get(container)
        return "was killed because it used more memory than its limit" + (f"; raise {field}" if field else "")
    words = cause_of(text(terminated, "message"))
    code = terminated.get("exitCode")
    ending = f"ended with exit code {code}"
    if code == KILLED:
        # The status does not say by whom; when it was for memory, it does.
        ending = f"was killed (exit code {code}), as kubelet does after failed probes"
    ending += f": {words}" if words else ""
    if container == ENGINE and _BAD_ARGUMENT.search(words):
        ending += " (see `spec.engine.args`)"
    return ending
