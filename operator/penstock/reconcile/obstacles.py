"""Watches over what refuses a backend's pods, and lets the cluster try again as soon as it has changed.

A ReplicaSet whose pods are refused is retried after delays that double up to a quarter of an hour, and nothing tells
its controller that a quota was raised in the meantime. So while a Deployment reports a refusal, the object that refuses
(`status.refusals`) is read every few seconds. When it has changed, an annotation is written to the Deployment; its
controller copies that to the ReplicaSet, and the change of the ReplicaSet ends the wait. As long as nothing changes
there is no write, and without a refusal there is no read.

A change that nobody was there to see, while no operator ran, leaves the cluster to its own delays.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.kube.client import Client
from penstock.kube.errors import Conflict, NotFound
from penstock.kube.kinds import DEPLOYMENT, LIMIT_RANGE, RESOURCE_QUOTA
from penstock.reconcile.cache import Cache
from penstock.reconcile.rights import Denied, OptionalReads
from penstock.resources.digest import digest
from penstock.resources.objects import Key, Object, key_of
from penstock.status.refusals import Gate, Obstacle, obstacle_of
from penstock.status.shapes import mapping

LOOK_SECONDS = 4.0
STATE_DIGITS = 10

RETRY_ANNOTATION = "serving.penstock.dev/retry"
"""Tells by its change that pods may be made now; the value says which state of the obstacle it answers."""

POD_SECURITY_LABELS = "pod-security.kubernetes.io/"

_log = logging.getLogger(__name__)


@dataclass
class _Watch:
    """An obstacle as it was last seen."""

    obstacle: Obstacle
    state: str
    seen_at: float


class Obstacles:
    """The obstacles of all backends.

    Args:
        client: The API server.
        cache: Own writes are entered at once.
        reads: Remembers what may not be read.
        now: A clock that never goes back, in seconds.
    """

    def __init__(
        self, client: Client, cache: Cache, reads: OptionalReads, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._cache = cache
        self._reads = reads
        self._now = now
        self._watches: dict[Key, _Watch] = {}

    async def look(self, key: Key, deployment: Object | None) -> float | None:
        """Look at what refuses a backend's pods and let them be tried again if it has changed.

        Returns:
            Seconds until the next look; None when nothing that can be seen refuses them.

        Raises:
            KubeError: The API server cannot be reached, or asks for a pause.
        """
        obstacle = obstacle_of(deployment)
        if deployment is None or obstacle is None:
            self.forget(key)
            return None
        now, before = self._now(), self._watches.get(key)
        if before is not None and before.obstacle == obstacle and (left := before.seen_at + LOOK_SECONDS - now) > 0:
            return left
        try:
            state = await self._state(key.namespace, obstacle)
        except Denied:
            # The cluster's own delays remain.
            return None
        self._watches[key] = _Watch(obstacle, state, now)
        if before is not None and before.obstacle == obstacle and before.state != state:
            await self._try_again(key, deployment, state)
            # The answer may show somebody's edit besides, and its event tells nothing new.
            return 0.0
        return LOOK_SECONDS

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a backend: its pods are made, or it is gone."""
        self._watches.pop(key, None)

    async def _state(self, namespace: str, obstacle: Obstacle) -> str:
        """Return a digest of all that decides whether pods are refused."""
        match obstacle.gate:
            case Gate.QUOTA:
                found = await self._reads.ask("get resourcequotas", namespace, lambda: self._quota(namespace, obstacle))
            case Gate.LIMIT_RANGE:
                found = await self._reads.ask("list limitranges", namespace, lambda: self._limit_ranges(namespace))
            case Gate.POD_SECURITY:
                found = await self._reads.ask("get namespaces", namespace, lambda: self._pod_security(namespace))
        return digest(found, STATE_DIGITS)

    async def _quota(self, namespace: str, obstacle: Obstacle) -> object:
        try:
            quota = await self._client.get(RESOURCE_QUOTA, Key(namespace, obstacle.name))
        except NotFound:
            return None
        # Only what the pods had too little of: other resources of the quota may change all the time.
        hard, used = mapping(quota, "status", "hard"), mapping(quota, "status", "used")
        return [(name, hard.get(name), used.get(name)) for name in obstacle.resources or sorted(hard)]

    async def _limit_ranges(self, namespace: str) -> object:
        return [
            (key_of(limits).name, limits.get("spec"))
            for limits in await self._client.list(LIMIT_RANGE, namespace=namespace)
        ]

    async def _pod_security(self, namespace: str) -> object:
        found = await self._client.read(f"/api/v1/namespaces/{namespace}")
        labels = mapping(found, "metadata", "labels")
        return {name: value for name, value in labels.items() if name.startswith(POD_SECURITY_LABELS)}

    async def _try_again(self, key: Key, deployment: Object, state: str) -> None:
        _log.info("%s: what refused its pods has changed; they are tried again", key)
        patch = {"metadata": {"annotations": {RETRY_ANNOTATION: state}}}
        try:
            answer = await self._client.patch(DEPLOYMENT, key_of(deployment), patch, uid=deployment["metadata"]["uid"])
        except (NotFound, Conflict):
            # The Deployment has gone meanwhile, and its refusal with it.
            self.forget(key)
            return
        self._cache.store(DEPLOYMENT, answer)
