"""What is wrong with a pod's volumes: claims that are missing, unbound or too narrow, Secrets that do not exist.

A pod's status says nothing of most of this. Claims are read because the spec names them, and of a missing Secret or
ConfigMap only Events tell. Both are read on demand (`reconcile.observe`), so they may be absent here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from penstock.api.backend import LLMBackend
from penstock.api.conditions import Reason
from penstock.resources.objects import Object
from penstock.status import pods as pod_status
from penstock.status.shapes import mapping, mappings, text, texts
from penstock.status.trouble import Trouble
from penstock.status.words import quote

MANY_NODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})
ONE_POD = "ReadWriteOncePod"

ATTACH_EVENT = "FailedAttachVolume"
MOUNT_EVENTS = frozenset({"FailedMount", ATTACH_EVENT, "FailedMapVolume"})
SANDBOX_EVENTS = frozenset({"FailedCreatePodSandBox", "NetworkNotReady"})

_SUMMARY = re.compile(r"^Unable to attach or mount volumes")
"""Kubelet's event that repeats, without the cause, what an earlier one has told."""

_MOUNT_WORDS = re.compile(r'^MountVolume\.\w+ failed for volume "(?P<volume>[^"]*)" ?: ')


def claim_names(backend: LLMBackend) -> Sequence[str]:
    """Return the names of the claims that a spec names, in its order, each once."""
    model = backend.spec.model
    claims = [
        model.source.persistent_volume_claim,
        model.cache.persistent_volume_claim if model.cache is not None else None,
        *(volume.persistent_volume_claim for volume in backend.spec.pod.volumes),
    ]
    return tuple(dict.fromkeys(claim.claim_name for claim in claims if claim is not None))


def trouble_of_claims(
    claims: Mapping[str, Object | None], pods: Iterable[Object], *, events: Iterable[Object] = (), wanted: int
) -> Trouble | None:
    """Return why replicas that do not start cannot have a claim.

    Args:
        claims: What was found under each name; None when nothing was.
        pods: The backend's pods.
        events: What was reported of those that are stuck.
        wanted: Replicas that are wanted.
    """
    alive = pod_status.newest(pods)
    held_elsewhere = any(text(event, "reason") == ATTACH_EVENT for event in events)
    for name, claim in sorted(claims.items()):
        trouble = _missing_or_unbound(name, claim, alive) or _too_narrow(
            name, claim, alive, wanted=wanted, held_elsewhere=held_elsewhere
        )
        if trouble is not None:
            return trouble
    return None


def trouble_of_events(events: Iterable[Object]) -> Trouble | None:
    """Return what kubelet has reported last about a pod that is stuck, if it is a cause."""
    told = [event for event in events if text(event, "reason") in MOUNT_EVENTS | SANDBOX_EVENTS]
    causes = [event for event in told if not _SUMMARY.search(text(event, "message"))]
    last = max(causes or told, key=_time, default=None)
    if last is None:
        return None
    words = text(last, "message") or text(last, "reason")
    pod = text(last, "involvedObject", "name")
    if text(last, "reason") in SANDBOX_EVENTS:
        return Trouble(reason=Reason.PODS_REFUSED, message=f"pod {pod} cannot be made: {quote(words)}")
    mount = _MOUNT_WORDS.match(words)
    volume = f"volume {mount['volume']} of a replica" if mount else f"a volume of pod {pod}"
    cause = quote(words[mount.end() :] if mount else words)
    return Trouble(reason=Reason.WAITING_FOR_VOLUME, message=f"{volume} cannot be mounted: {cause}")


def has_image_volume(deployment: Object) -> bool:
    """Tell whether a volume of the Deployment's pods is an image, as the API server has stored it."""
    return any(mapping(volume, "image") for volume in mappings(deployment, "spec", "template", "spec", "volumes"))


def _missing_or_unbound(name: str, claim: Object | None, pods: Sequence[Object]) -> Trouble | None:
    if claim is None:
        message = f"the PersistentVolumeClaim {name} does not exist; make it, or name another one"
        return Trouble(reason=Reason.WAITING_FOR_VOLUME, message=message)
    if "deletionTimestamp" in mapping(claim, "metadata"):
        message = f"the PersistentVolumeClaim {name} is being deleted"
        return Trouble(reason=Reason.WAITING_FOR_VOLUME, message=message)
    phase = text(claim, "status", "phase")
    if phase == "Lost":
        message = f"the volume of the PersistentVolumeClaim {name} is gone"
        return Trouble(reason=Reason.WAITING_FOR_VOLUME, message=message)
    # A claim may be waiting for its first pod, which is no trouble unless the pod waits for the claim.
    waiting = any(pod_status.waits_for_volume(pod) for pod in pods)
    if phase == "Pending" and waiting:
        storage = text(claim, "spec", "storageClassName")
        source = f"storage class {storage}" if storage else "no storage class"
        message = f"the PersistentVolumeClaim {name} ({source}) has no volume yet"
        return Trouble(reason=Reason.WAITING_FOR_VOLUME, message=message)
    return None


def _too_narrow(
    name: str, claim: Object | None, pods: Sequence[Object], *, wanted: int, held_elsewhere: bool
) -> Trouble | None:
    modes = texts(claim, "spec", "accessModes")
    if not modes or MANY_NODES & set(modes):
        return None
    hosts = {host for pod in pods if (host := text(pod, "status", "hostIP"))}
    remedy = "use a claim with ReadWriteMany or ReadOnlyMany"
    if set(modes) == {ONE_POD} and wanted > 1:
        message = f"the PersistentVolumeClaim {name} serves one pod (ReadWriteOncePod), {wanted} replicas want it; "
        return Trouble(reason=Reason.VOLUME_NOT_SHARED, message=message + remedy, stalled=True)
    if len(hosts) > 1 and held_elsewhere:
        message = (
            f"the PersistentVolumeClaim {name} serves one node (ReadWriteOnce), the replicas are on {len(hosts)}; "
            f"{remedy}, or keep them on one node with `spec.pod.nodeSelector`"
        )
        return Trouble(reason=Reason.VOLUME_NOT_SHARED, message=message, stalled=True)
    if wanted > 1 and any(pod_status.waits_for_volume(pod) for pod in pods) and hosts:
        message = (
            f"the PersistentVolumeClaim {name} serves one node (ReadWriteOnce), which cannot take all {wanted} "
            f"replicas; {remedy}"
        )
        return Trouble(reason=Reason.VOLUME_NOT_SHARED, message=message)
    return None


def _time(event: Object) -> str:
    return text(event, "series", "lastObservedTime") or text(event, "lastTimestamp") or text(event, "eventTime")
