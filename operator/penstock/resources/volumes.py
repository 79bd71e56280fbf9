"""The pod's volumes and the engine's mounts: what the engine writes to, the model, the limiter's, the user's own."""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.api.pod import RESERVED_VOLUME_PREFIX
from penstock.engines.engine import WritableDirectory, for_type
from penstock.resources import limiter, model
from penstock.resources.objects import Object


def pod(backend: LLMBackend) -> list[Object]:
    """Return the pod's `volumes`."""
    return [
        *limiter.volumes(backend),
        *(_empty(directory) for directory in _writable(backend)),
        *model.volumes(backend),
        *(volume.to_dict() for volume in backend.spec.pod.volumes),
    ]


def engine_mounts(backend: LLMBackend) -> list[Object]:
    """Return the engine container's `volumeMounts`."""
    return [
        *(
            {"name": RESERVED_VOLUME_PREFIX + directory.name, "mountPath": directory.path}
            for directory in _writable(backend)
        ),
        *model.engine_mounts(backend),
        *(mount.to_dict() for mount in backend.spec.pod.volume_mounts),
    ]


def _writable(backend: LLMBackend) -> list[WritableDirectory]:
    return for_type(backend.spec.engine.type).writable_directories(backend.spec)


def _empty(directory: WritableDirectory) -> Object:
    source: Object = {}
    if directory.memory:
        source["medium"] = "Memory"
    if directory.size_mebibytes is not None:
        source["sizeLimit"] = f"{directory.size_mebibytes}Mi"
    return {"name": RESERVED_VOLUME_PREFIX + directory.name, "emptyDir": source}
