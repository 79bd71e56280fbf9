"""The model's weights in the engine container: a claim, an OCI image, or what the download has fetched.

A model that is part of the engine image needs nothing here.
"""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.api.errors import Problem
from penstock.api.model import MODEL_DIRECTORY
from penstock.resources import download
from penstock.resources.download import MODEL_VOLUME
from penstock.resources.facts import ClusterFacts
from penstock.resources.objects import Object

IMAGE_VOLUMES_SINCE_MINOR = 31
"""Older API servers do not know the field and refuse the whole workload; that newer ones may have it switched off shows
only in what they store."""


def check(backend: LLMBackend, facts: ClusterFacts) -> list[Problem]:
    """Return why the cluster cannot provide the model; nothing while its version is unknown."""
    minor = facts.kubernetes_minor
    if backend.spec.model.source.image is None or minor is None or minor >= IMAGE_VOLUMES_SINCE_MINOR:
        return []
    message = (
        f"Kubernetes 1.{minor} cannot mount an image as a volume: that needs 1.35, or 1.33 with the feature gate "
        "ImageVolume; use `huggingFace`, `persistentVolumeClaim` or `baked` instead"
    )
    return [Problem("spec.model.source.image", message)]


def volumes(backend: LLMBackend) -> list[Object]:
    """Return the pod's volumes for the model."""
    source = backend.spec.model.source
    if source.image is not None:
        return [{"name": MODEL_VOLUME, "image": {"reference": source.image.reference}}]
    claim = source.persistent_volume_claim
    if claim is not None and _claim_volume(backend, claim.claim_name) == MODEL_VOLUME:
        return [{"name": MODEL_VOLUME, "persistentVolumeClaim": {"claimName": claim.claim_name, "readOnly": True}}]
    return download.volumes(backend)


def engine_mounts(backend: LLMBackend) -> list[Object]:
    """Return the engine container's mounts of the model."""
    source = backend.spec.model.source
    if source.image is not None:
        return [_mount(MODEL_VOLUME)]
    if source.persistent_volume_claim is not None:
        return [_mount(_claim_volume(backend, source.persistent_volume_claim.claim_name))]
    return download.engine_mounts(backend)


def _mount(volume: str) -> Object:
    return {"name": volume, "mountPath": MODEL_DIRECTORY, "readOnly": True}


def _claim_volume(backend: LLMBackend, claim_name: str) -> str:
    """Return the name of the volume that is the claim: the user's own, if one of them is the same claim.

    A kubelet waits for ever for the second of two volumes of one pod that are the same claim.
    """
    for volume in backend.spec.pod.volumes:
        if volume.persistent_volume_claim and volume.persistent_volume_claim.claim_name == claim_name:
            return volume.name
    return MODEL_VOLUME
