"""Secrets of the user that reach the limiter: as files in its container alone, which kubelet puts there.

The operator only names them, so it needs no right to read them, and a value never shows in a pod's environment.
Changed contents reach a running limiter; another Secret, or another key of it, is another pod.
"""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.api.pod import RESERVED_VOLUME_PREFIX
from penstock.api.replica import STORE_PATH, TENANTS_PATH
from penstock.resources.objects import Object

TENANTS_VOLUME = RESERVED_VOLUME_PREFIX + "tenants"
STORE_VOLUME = RESERVED_VOLUME_PREFIX + "store"
STORE_URL_FILE = "url"


def tenants_path(backend: LLMBackend) -> str | None:
    """Return the folder with the tenants' API keys; None when keys are not asked for."""
    return TENANTS_PATH if _tenants(backend) else None


def store_url_path(backend: LLMBackend) -> str | None:
    """Return the path of the file with the shared store's URL; None when no Secret holds one."""
    return f"{STORE_PATH}/{STORE_URL_FILE}" if _store(backend) else None


def volumes(backend: LLMBackend) -> list[Object]:
    """Return the volumes."""
    sources = {TENANTS_VOLUME: _tenants(backend), STORE_VOLUME: _store(backend)}
    return [{"name": name, "secret": source} for name, source in sources.items() if source]


def mounts(backend: LLMBackend) -> list[Object]:
    """Return the limiter's mounts.

    They lie below the folder of the policy, another volume; kubelet makes the folders that such mounts need.
    """
    paths = {TENANTS_VOLUME: TENANTS_PATH, STORE_VOLUME: STORE_PATH}
    return [
        {"name": volume["name"], "mountPath": paths[volume["name"]], "readOnly": True} for volume in volumes(backend)
    ]


def _tenants(backend: LLMBackend) -> Object:
    tenants = backend.spec.tenants
    if tenants is None or tenants.keys_secret_ref is None:
        return {}
    return {"secretName": tenants.keys_secret_ref.name}


def _store(backend: LLMBackend) -> Object:
    store = backend.spec.admission.shared_store
    if store is None or store.redis.secret_ref is None:
        return {}
    reference = store.redis.secret_ref
    return {"secretName": reference.name, "items": [{"key": reference.key, "path": STORE_URL_FILE}]}
