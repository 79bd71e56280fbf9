"""The pod's volumes and the engine's mounts: what the engine writes to, the model, the policy, and the user's own."""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.api.model import MODEL_DIRECTORY
from penstock.api.pod import RESERVED_VOLUME_PREFIX
from penstock.engines.engine import WritableDirectory, for_type
from penstock.resources import configmap
from penstock.resources.limiter import POLICY_VOLUME
from penstock.resources.objects import Object

MODEL_VOLUME = RESERVED_VOLUME_PREFIX + "model"


def pod(backend: LLMBackend) -> list[Object]:
    """Return the pod's `volumes`."""
    claim = backend.spec.model.source.persistent_volume_claim
    volumes: list[Object] = [{"name": POLICY_VOLUME, "configMap": {"name": configmap.name(backend)}}]
    volumes += [_empty(directory) for directory in _writable(backend)]
    if claim is not None and _model_volume(backend) == MODEL_VOLUME:
        source = {"claimName": claim.claim_name, "readOnly": True}
        volumes.append({"name": MODEL_VOLUME, "persistentVolumeClaim": source})
    volumes += [volume.to_dict() for volume in backend.spec.pod.volumes]
    return volumes


def engine_mounts(backend: LLMBackend) -> list[Object]:
    """Return the engine container's `volumeMounts`."""
    mounts: list[Object] = [
        {"name": RESERVED_VOLUME_PREFIX + directory.name, "mountPath": directory.path}
        for directory in _writable(backend)
    ]
    if backend.spec.model.source.persistent_volume_claim is not None:
        mounts.append({"name": _model_volume(backend), "mountPath": MODEL_DIRECTORY, "readOnly": True})
    mounts += [mount.to_dict() for mount in backend.spec.pod.volume_mounts]
    return mounts


def _model_volume(backend: LLMBackend) -> str:
    """Return the name of the volume that holds the model: the user's own, if one of them is the same claim.

    A kubelet waits for ever for the second of two volumes of one pod that are the same claim.
    """
    claim = backend.spec.model.source.persistent_volume_claim
    for volume in backend.spec.pod.volumes:
        if claim and volume.persistent_volume_claim and volume.persistent_volume_claim.claim_name == claim.claim_name:
            return volume.name
    return MODEL_VOLUME


def _writable(backend: LLMBackend) -> list[WritableDirectory]:
    return for_type(backend.spec.engine.type).writable_directories(backend.spec)


def _empty(directory: WritableDirectory) -> Object:
    source: Object = {}
    if directory.memory:
        source["medium"] = "Memory"
    if directory.size_mebibytes is not None:
        source["sizeLimit"] = f"{directory.size_mebibytes}Mi"
    return {"name": RESERVED_VOLUME_PREFIX + directory.name, "emptyDir": source}
