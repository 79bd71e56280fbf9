"""Why a backend is not complete: what is in the way, or what it is waiting for."""

from __future__ import annotations

from dataclasses import replace

from penstock.api.backend import LLMBackend
from penstock.api.conditions import Reason
from penstock.resources.objects import Object
from penstock.status import pods as pod_status
from penstock.status import refusals, volumes
from penstock.status.observation import Observation
from penstock.status.rollout import Rollout
from penstock.status.trouble import Trouble

EACH_DOWNLOADS = "without `spec.model.cache` each new replica downloads the model again"


def trouble_of(backend: LLMBackend, observation: Observation, rollout: Rollout) -> Trouble | None:
    """Return what is in the way, if anything is."""
    if not rollout.current or backend.spec.suspend:
        return None
    found = _cause(backend, observation)
    count = rollout.count(backend.spec.replicas)
    if rollout.deadline_exceeded and not rollout.complete(backend.spec.replicas):
        cause = found.message if found is not None else "the rollout has not moved for longer than it may"
        message = f"{count}, and the rollout was given up: {cause}"
        return Trouble(reason=Reason.PROGRESS_DEADLINE_EXCEEDED, message=message, stalled=True)
    return replace(found, message=f"{count}: {found.message}") if found is not None else None


def _cause(backend: LLMBackend, observation: Observation) -> Trouble | None:
    """Return what keeps replicas from being ready, from the cause that explains most to the one that explains least."""
    pods, wanted = observation.pods, backend.spec.replicas
    return (
        _dropped_image_volume(backend, observation.deployment)
        or refusals.trouble_of(observation.deployment)
        or volumes.trouble_of_claims(observation.claims, pods, events=observation.events, wanted=wanted)
        or pod_status.trouble_of(pods)
        or volumes.trouble_of_events(observation.events)
    )


def _dropped_image_volume(backend: LLMBackend, deployment: Object | None) -> Trouble | None:
    """Recognise a model image that the API server has dropped: an older one stores a volume without it."""
    image = backend.spec.model.source.image
    if image is None or deployment is None or volumes.has_image_volume(deployment):
        return None
    message = (
        "the cluster cannot mount the image of `spec.model.source.image` as a volume: that needs Kubernetes 1.35, or "
        "1.33 with the feature gate ImageVolume; use `huggingFace`, `persistentVolumeClaim` or `baked` instead"
    )
    return Trouble(reason=Reason.IMAGE_VOLUMES_UNAVAILABLE, message=message, stalled=True)


def under_way(backend: LLMBackend, observation: Observation, rollout: Rollout) -> Trouble:
    """Return what a backend without trouble is waiting for."""
    spec, count = backend.spec, rollout.count(backend.spec.wanted_replicas)
    if spec.paused and not observation.applied:
        message = f"{count}; `spec.paused` is set: the children are not brought to the current spec"
        return Trouble(reason=Reason.PAUSED, message=message)
    if spec.suspend:
        message = f"`spec.suspend` is set: {rollout.replicas} replicas are being drained"
        return Trouble(reason=Reason.SUSPENDED, message=message)
    if not rollout.current:
        return Trouble(reason=Reason.ROLLING_OUT, message=f"{count}; a change is being taken up")
    return _moving(backend, observation, rollout, count)


def _moving(backend: LLMBackend, observation: Observation, rollout: Rollout, count: str) -> Trouble:
    if rollout.updated < rollout.replicas:
        message = f"{count}; {rollout.updated} of {rollout.replicas} run the current spec"
        return Trouble(reason=Reason.ROLLING_OUT, message=message)
    leaving = rollout.replicas - backend.spec.replicas
    if leaving > 0:
        message = f"{count}; {leaving} more than wanted, on the way out"
        return Trouble(reason=Reason.SCALING, message=message)
    return _starting(backend, observation, count)


def _starting(backend: LLMBackend, observation: Observation, count: str) -> Trouble:
    if pod_status.is_downloading(observation.pods):
        cost = f"; {EACH_DOWNLOADS}" if downloads_again(backend) else ""
        return Trouble(reason=Reason.DOWNLOADING_MODEL, message=f"{count}; the model is being downloaded{cost}")
    if pod_status.is_loading(observation.pods):
        return Trouble(reason=Reason.WAITING_FOR_MODEL, message=f"{count}; the engine loads its model")
    return Trouble(reason=Reason.SCALING, message=f"{count}; the others are being started{_blind(observation)}")


def _blind(observation: Observation) -> str:
    if not observation.unreadable:
        return ""
    rights = " and ".join(observation.unreadable)
    return f" (to see what holds them up, the operator needs the right to {rights})"


def downloads_again(backend: LLMBackend) -> bool:
    """Tell whether the model is downloaded by each replica for itself, which costs time at every start."""
    model = backend.spec.model
    shared = model.cache is not None and model.cache.persistent_volume_claim is not None
    return model.source.hugging_face is not None and not shared
