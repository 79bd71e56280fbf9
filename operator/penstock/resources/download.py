"""The download of a model: an init container that runs before everything else in the pod, and the volume it fills.

It is the first container, so a pod that downloads has no limiter and no engine yet: it is not ready, there is nothing
to drain, and when it is deleted SIGTERM ends the download at once. It runs as the engine's user, so that the engine can
read what it writes, and has the CPU and memory that the engine gets afterwards, so that it never makes a pod larger.
"""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.api.download import DEFAULT_ENDPOINT, DownloadSettings, folder
from penstock.api.pod import RESERVED_VOLUME_PREFIX
from penstock.api.source import MODEL_DIRECTORY, HuggingFaceSource
from penstock.resources import security
from penstock.resources.objects import Object
from penstock.resources.settings import BuildSettings

CONTAINER = "download"
MODEL_VOLUME = RESERVED_VOLUME_PREFIX + "model"
TOKEN_VOLUME = RESERVED_VOLUME_PREFIX + "hub-token"
TOKEN_DIRECTORY = "/etc/penstock/hub"  # noqa: S105 - where it is, not what it is
TOKEN_FILE = "token"  # noqa: S105
TOKEN_MODE = 0o440
"""For the user and the group of the container, which the pod's group is."""

SCRATCH_VOLUME = RESERVED_VOLUME_PREFIX + "download-tmp"

SHARED_RESOURCES = ("cpu", "memory", "ephemeral-storage")
"""What the download takes from the engine's resources; an accelerator would only be held for nothing."""

NETWORK_VARIABLES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"})
"""The engine's variables that say how to reach the outside; the download needs them at least as much."""

SIZE_LIMIT_FACTOR = 2
"""How far beyond `model.sizeMebibytes` an emptyDir may grow before the node takes the pod for a runaway."""


def init_container(backend: LLMBackend, settings: BuildSettings) -> Object | None:
    """Return the container; None for a model that needs no download."""
    source = backend.spec.model.source.hugging_face
    if source is None:
        return None
    mounts: list[Object] = [
        {"name": _volume_name(backend), "mountPath": MODEL_DIRECTORY},
        {"name": SCRATCH_VOLUME, "mountPath": "/tmp"},  # noqa: S108 - an emptyDir of this container alone
    ]
    if source.token_secret_ref is not None:
        mounts.append({"name": TOKEN_VOLUME, "mountPath": TOKEN_DIRECTORY, "readOnly": True})
    return {
        "name": CONTAINER,
        "image": settings.limiter_image,
        "command": ["penstock", "download"],
        "env": _environment(backend, source),
        "resources": _resources(backend),
        "securityContext": security.engine(backend, platform=settings.platform),
        # Its last line says why it failed; status quotes it.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def volumes(backend: LLMBackend) -> list[Object]:
    """Return the volumes of the download; none for a model that needs none."""
    source = backend.spec.model.source.hugging_face
    if source is None:
        return []
    found: list[Object] = [{"name": SCRATCH_VOLUME, "emptyDir": {}}]
    if _volume_name(backend) == MODEL_VOLUME:
        found.append({"name": MODEL_VOLUME, **_model_volume(backend)})
    if source.token_secret_ref is not None:
        items = [{"key": source.token_secret_ref.key, "path": TOKEN_FILE}]
        secret = {"secretName": source.token_secret_ref.name, "items": items, "defaultMode": TOKEN_MODE}
        found.append({"name": TOKEN_VOLUME, "secret": secret})
    return found


def engine_mounts(backend: LLMBackend) -> list[Object]:
    """Return where the engine sees the model: its own folder of the volume alone, read-only.

    A subPath, so that other models in the same claim stay out of sight; the folder is there before the engine starts,
    and its name changes with what is asked for.
    """
    source = backend.spec.model.source.hugging_face
    if source is None:
        return []
    mount = {"name": _volume_name(backend), "mountPath": MODEL_DIRECTORY, "subPath": _folder(source), "readOnly": True}
    return [mount]


def _folder(source: HuggingFaceSource) -> str:
    return folder(
        repository=source.repository,
        revision=source.revision,
        file=source.file,
        endpoint=source.endpoint or DEFAULT_ENDPOINT,
    )


def _environment(backend: LLMBackend, source: HuggingFaceSource) -> list[Object]:
    own = DownloadSettings(
        repository=source.repository,
        revision=source.revision,
        file=source.file,
        endpoint=source.endpoint or DEFAULT_ENDPOINT,
        token_path=f"{TOKEN_DIRECTORY}/{TOKEN_FILE}" if source.token_secret_ref is not None else None,
        volume=MODEL_DIRECTORY,
        folder=_folder(source),
    )
    variables: list[Object] = [{"name": name, "value": value} for name, value in own.to_env().items()]
    # The library keeps nothing of value outside the volume; what it does write may not go to the read-only root.
    variables.append({"name": "HF_HOME", "value": "/tmp/huggingface"})  # noqa: S108
    variables.append({"name": "HF_HUB_DISABLE_TELEMETRY", "value": "1"})
    variables += [one.to_dict() for one in backend.spec.engine.env if one.name.upper() in NETWORK_VARIABLES]
    return variables


def _resources(backend: LLMBackend) -> Object:
    given = backend.spec.resources.to_dict()
    return {
        kind: shared
        for kind in ("requests", "limits")
        if (shared := {name: given[kind][name] for name in SHARED_RESOURCES if name in given.get(kind, {})})
    }


def _model_volume(backend: LLMBackend) -> Object:
    model = backend.spec.model
    cache = model.cache
    if cache is not None and cache.persistent_volume_claim is not None:
        return {"persistentVolumeClaim": {"claimName": cache.persistent_volume_claim.claim_name}}
    if cache is not None and cache.ephemeral is not None:
        claim: Object = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": f"{cache.ephemeral.size_mebibytes}Mi"}},
        }
        if cache.ephemeral.storage_class_name is not None:
            claim["storageClassName"] = cache.ephemeral.storage_class_name
        return {"ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    if model.size_mebibytes is not None:
        return {"emptyDir": {"sizeLimit": f"{SIZE_LIMIT_FACTOR * model.size_mebibytes}Mi"}}
    return {"emptyDir": {}}


def _volume_name(backend: LLMBackend) -> str:
    """Return the name of the volume that holds the model: the user's own, if one of them is the same claim.

    A kubelet waits for ever for the second of two volumes of one pod that are the same claim.
    """
    cache = backend.spec.model.cache
    claim = cache.persistent_volume_claim if cache is not None else None
    for volume in backend.spec.pod.volumes:
        own = volume.persistent_volume_claim
        if claim is not None and own is not None and own.claim_name == claim.claim_name:
            return volume.name
    return MODEL_VOLUME
