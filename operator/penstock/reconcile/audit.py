"""Compares the cache with the cluster: once before the first reconcile, then now and then.

Watches tell of every change, as long as their connection holds. When one has to start over, the objects that vanished
in between are never mentioned. So everything is listed from time to time, what is missing is removed from the cache,
and every backend gets a pass; one that finds nothing changed costs no request. What a list shows before its event has
arrived is news like that event, which then tells nothing new.

Before the first reconcile the same list fills the cache, so that a restarted operator does not ask for each child.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.kube.client import Client
from penstock.kube.errors import Forbidden
from penstock.kube.kinds import LLM_BACKEND, Kind
from penstock.reconcile.cache import Cache, keys_of
from penstock.reconcile.queue import WorkQueue
from penstock.resources.labels import MANAGED_BY, MANAGER
from penstock.resources.objects import Key, key_of

MANAGED = {MANAGED_BY: MANAGER}


async def audit(
    client: Client, cache: Cache, queue: WorkQueue[Key], *, namespaces: Sequence[str], kinds: Iterable[Kind]
) -> None:
    """Bring the cache up to date and let every backend that concerns be looked at.

    Args:
        client: The API server.
        cache: Brought up to date.
        queue: Gets the backends of objects that have changed or vanished, and all backends when these are among the
            kinds.
        namespaces: Where backends are served; empty means everywhere.
        kinds: What to list.

    Raises:
        KubeError: A kind cannot be listed; the kinds before it are up to date, and so is all else if it is refused.
    """
    kinds = tuple(kinds)
    refused: Forbidden | None = None
    for kind in kinds:
        for namespace in namespaces or (None,):
            try:
                concerned = await _audit_kind(client, cache, kind, namespace)
            except Forbidden as error:
                # One namespace, or one kind, that may not be read says nothing about the others.
                refused = refused or error
                continue
            for key in concerned:
                queue.add(key)
    if LLM_BACKEND in kinds:
        for key in cache.all(LLM_BACKEND):
            queue.add(key)
    if refused is not None:
        raise refused


async def _audit_kind(client: Client, cache: Cache, kind: Kind, namespace: str | None) -> set[Key]:
    held_before = cache.all(kind)
    labels = None if kind == LLM_BACKEND else MANAGED
    listed = await client.list(kind, namespace=namespace, labels=labels)
    concerned = {key for obj in listed for key in cache.take(kind, obj)}
    alive = {key_of(obj) for obj in listed}
    vanished = [obj for key, obj in held_before.items() if key not in alive and namespace in (None, key.namespace)]
    # What has been heard of meanwhile is newer than what was held before the list, and the cache keeps it.
    for obj in vanished:
        cache.remove(kind, obj)
    return concerned | keys_of(kind, vanished)
