"""Compares the cache with the cluster: once before the first reconcile, then now and then.

Watches tell of every change, as long as their connection holds. When one has to start over, the objects that vanished
in between are never mentioned. So everything is listed from time to time, what is missing is removed from the cache,
and every backend gets a pass; one that finds nothing changed costs no request.

Before the first reconcile the same list fills the cache, so that a restarted operator does not ask for each child.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.kube.client import Client
from penstock.kube.kinds import CHILD_KINDS, LLM_BACKEND, POD, Kind
from penstock.reconcile.cache import Cache, keys_of
from penstock.reconcile.queue import WorkQueue
from penstock.resources.labels import MANAGED_BY, MANAGER
from penstock.resources.objects import Key, key_of

MANAGED = {MANAGED_BY: MANAGER}

WATCHED_KINDS = (LLM_BACKEND, *CHILD_KINDS, POD)


async def audit(client: Client, cache: Cache, queue: WorkQueue[Key], *, namespaces: Sequence[str]) -> None:
    """Bring the cache up to date and let every backend be looked at.

    Args:
        client: The API server.
        cache: Brought up to date.
        queue: Gets every backend.
        namespaces: Where backends are served; empty means everywhere.

    Raises:
        KubeError: A kind cannot be listed; the kinds before it are up to date.
    """
    for kind in WATCHED_KINDS:
        for namespace in namespaces or (None,):
            for key in await _audit_kind(client, cache, kind, namespace):
                queue.add(key)
    for key in cache.all(LLM_BACKEND):
        queue.add(key)


async def _audit_kind(client: Client, cache: Cache, kind: Kind, namespace: str | None) -> set[Key]:
    held_before = cache.all(kind)
    labels = None if kind == LLM_BACKEND else MANAGED
    listed = await client.list(kind, namespace=namespace, labels=labels)
    for obj in listed:
        cache.store(kind, obj)
    alive = {key_of(obj) for obj in listed}
    vanished = [obj for key, obj in held_before.items() if key not in alive and namespace in (None, key.namespace)]
    # What has been heard of meanwhile is newer than what was held before the list, and the cache keeps it.
    for obj in vanished:
        cache.remove(kind, obj)
    return keys_of(kind, vanished)
