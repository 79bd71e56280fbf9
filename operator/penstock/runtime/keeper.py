"""Keeps what is known of the cluster true: runs the watches, compares everything now and then, and looks for new kinds.

It works in every replica, whether it leads or stands by, and never writes: a replica that takes over knows everything
already. What ends a watch for good (a refused request, an error in its stream) ends only kopf, which is started again
after a while, and so it is when a watch has not been opened for longer than one lives. Each list that kopf makes is
followed by a comparison, because what vanished before it is named by none.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from kubernetes.aio.client.configuration import Configuration

from penstock.kube.client import Client
from penstock.kube.errors import KubeError
from penstock.kube.kinds import LLM_BACKEND, Kind
from penstock.reconcile.audit import audit
from penstock.reconcile.cache import Cache
from penstock.reconcile.discovery import Discovery, watched_kinds
from penstock.reconcile.queue import WorkQueue
from penstock.reconcile.scope import Scope
from penstock.resources.objects import Key
from penstock.runtime import source
from penstock.runtime.settings import OperatorSettings
from penstock.runtime.streams import Streams
from penstock.runtime.supervision import first_end

RESYNC_SPREAD = 0.1
FIRST_RESTART_SECONDS = 1.0
LONGEST_RESTART_SECONDS = 30.0
DEAD_SECONDS = source.WATCH_CLIENT_TIMEOUT_SECONDS + 30.0
"""A watch that was opened longer ago is dead: kopf opens each again when its time is over, and soon after a failure."""

DEAD_CHECK_SECONDS = 5.0
SETTLE_SECONDS = 1.0
"""How long a list's comparison waits, so that the lists of all kinds share one."""

_log = logging.getLogger(__name__)


class Keeper:
    """See the module's docstring.

    Args:
        client: The API server, for reading.
        configuration: The same, for kopf.
        cache: Kept true.
        queue: Gets the backends for which something has changed.
        settings: The operator's.
        on_started: Called whenever kopf has installed its signal handlers, to put others in their place.

    Attributes:
        discovery: What the cluster serves.
    """

    def __init__(
        self,
        client: Client,
        configuration: Configuration,
        cache: Cache,
        queue: WorkQueue[Key],
        settings: OperatorSettings,
        *,
        on_started: Callable[[], None],
    ) -> None:
        self.discovery = Discovery(client)
        self._client = client
        self._configuration = configuration
        self._cache = cache
        self._queue = queue
        self._settings = settings
        self._on_started = on_started
        self._streams = Streams(time.monotonic, on_list=self._listed)
        self._scope = Scope(client, settings.watch_namespaces)
        self._stale: set[Kind] = set()
        self._something_stale = asyncio.Event()
        self._changed = asyncio.Event()

    @property
    def oldest_watch_seconds(self) -> float:
        """How long ago the watch that has been silent for longest gave a sign of life."""
        return self._streams.oldest_seconds()

    async def fill(self) -> None:
        """Learn everything once.

        Raises:
            KubeError: Something cannot be read.
        """
        await self.discovery.refresh()
        await self._scope.refresh()
        await self._audit(watched_kinds(self.discovery.facts))

    async def run(self) -> None:
        """Keep it true until cancelled.

        Raises:
            TaskEnded: One of its loops has ended.
        """
        tasks = [asyncio.create_task(loop(), name=loop.__name__) for loop in (self._watch, self._compare, self._look)]
        try:
            await first_end(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        pause = FIRST_RESTART_SECONDS
        while True:
            self._changed.clear()
            started = time.monotonic()
            watching = asyncio.create_task(
                source.run(
                    self._configuration,
                    self._cache,
                    self._queue,
                    namespaces=self._scope.namespaces,
                    kinds=watched_kinds(self.discovery.facts),
                    streams=self._streams,
                    on_started=self._on_started,
                ),
                name="watching",
            )
            others = (
                asyncio.create_task(self._changed.wait(), name="change of what is watched"),
                asyncio.create_task(self._dead(started), name="dead watch"),
            )
            try:
                done, _ = await asyncio.wait((watching, *others), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (watching, *others):
                    task.cancel()
                (end, *_) = await asyncio.gather(watching, *others, return_exceptions=True)
            if not done.isdisjoint(others):
                continue
            pause = FIRST_RESTART_SECONDS if time.monotonic() - started > LONGEST_RESTART_SECONDS else pause
            _log.warning("watching the cluster has failed and begins again in %.0f s: %s", pause, end)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_RESTART_SECONDS)
            await self._survey()

    async def _dead(self, started: float) -> None:
        """Return when a watch is dead though kopf runs."""
        while min(self.oldest_watch_seconds, time.monotonic() - started) < DEAD_SECONDS:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(DEAD_CHECK_SECONDS)
        _log.warning("a watch has shown no sign of life for %.0f s; all begin again", self.oldest_watch_seconds)

    async def _survey(self) -> None:
        """Find out which namespaces can be read, forget what is in the others, and watch accordingly."""
        before = self._scope.namespaces
        try:
            changed = await self._scope.refresh()
        except KubeError as error:
            _log.debug("which namespaces can be read could not be asked: %s", error)
            return
        if changed:
            self._forget(watched_kinds(self.discovery.facts), set(before) - set(self._scope.namespaces))
            self._changed.set()

    def _forget(self, kinds: Iterable[Kind], namespaces: Collection[str] | None = None) -> None:
        """Drop what is held of these kinds; nothing tells of it any more, so it may be there or not."""
        for kind in kinds:
            for key in self._cache.all(kind):
                if namespaces is None or key.namespace in namespaces:
                    self._cache.drop(kind, key)
                    if kind == LLM_BACKEND:
                        self._queue.add(key)

    def _listed(self, path: str) -> None:
        for kind in watched_kinds(self.discovery.facts):
            if path in (kind.path(namespace) for namespace in self._scope.namespaces or (None,)):
                self._stale.add(kind)
                self._something_stale.set()

    async def _compare(self) -> None:
        pause = FIRST_RESTART_SECONDS
        while True:
            spread = random.uniform(1 - RESYNC_SPREAD, 1 + RESYNC_SPREAD)
            try:
                async with asyncio.timeout(self._settings.resync_seconds * spread):
                    await self._something_stale.wait()
                await asyncio.sleep(SETTLE_SECONDS)
                kinds = self._stale
            except TimeoutError:
                kinds = set(watched_kinds(self.discovery.facts))
            self._stale = set()
            self._something_stale.clear()
            try:
                await self._audit(sorted(kinds, key=str))
            except KubeError as error:
                _log.warning("the comparison with the cluster failed and is tried again: %s", error)
                self._stale |= kinds
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_RESTART_SECONDS)
                await self._survey()
                self._something_stale.set()
            else:
                pause = FIRST_RESTART_SECONDS

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._settings.discovery_seconds)
            await self._survey()
            before = watched_kinds(self.discovery.facts)
            try:
                if not await self.discovery.refresh():
                    continue
            except KubeError as error:
                _log.debug("what the cluster serves could not be asked: %s", error)
                continue
            after = watched_kinds(self.discovery.facts)
            self._forget(set(before) - set(after))
            if after != before:
                self._changed.set()
            for key in self._cache.all(LLM_BACKEND):
                self._queue.add(key)

    async def _audit(self, kinds: Sequence[Kind]) -> None:
        namespaces = self._scope.namespaces
        await audit(self._client, self._cache, self._queue, namespaces=namespaces, kinds=kinds)
