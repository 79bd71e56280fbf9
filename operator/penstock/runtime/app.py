"""The operator's process: what starts after what, and what ends before what.

Start: listen (so that probes are answered), wait for the API server and the CRD, make or read the drain key, list
everything once, then work and watch. End, on SIGTERM or SIGINT: watches stop, the endpoints close, workers finish what
they are at, connections close. The state of the world is in the cluster, so nothing has to be saved.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import signal
from collections.abc import Coroutine
from typing import TypeVar

from kubernetes.aio.client.configuration import Configuration

from penstock.kube import connection
from penstock.kube.client import Client, KubernetesClient
from penstock.kube.errors import Forbidden, KubeError, NotFound, TooManyRequests, Unavailable
from penstock.kube.kinds import LLM_BACKEND
from penstock.reconcile.audit import audit
from penstock.reconcile.backoff import Backoff
from penstock.reconcile.cache import Cache
from penstock.reconcile.queue import WorkQueue
from penstock.reconcile.reconciler import Reconciler
from penstock.reconcile.worker import work
from penstock.resources.objects import Key
from penstock.resources.settings import BuildSettings
from penstock.runtime import drainkey, source
from penstock.runtime.endpoints import Endpoints
from penstock.runtime.metrics import Metrics
from penstock.runtime.settings import OperatorSettings

START_RETRY_SECONDS = 1.0
WORKERS_STOP_SECONDS = 4.0
FIRST_AUDIT_SECONDS = 5.0
RESYNC_SPREAD = 0.1

T = TypeVar("T")

_log = logging.getLogger(__name__)


class StartFailed(Exception):  # noqa: N818 - says what happened
    """The operator cannot run here; the text says what to change."""


class Operator:
    """One operator process, or one operator in a test.

    Args:
        settings: See `OperatorSettings`.
        handle_signals: End on SIGTERM and SIGINT.
    """

    def __init__(self, settings: OperatorSettings, *, handle_signals: bool = False) -> None:
        self._settings = settings
        self._signals = (signal.SIGTERM, signal.SIGINT) if handle_signals else ()
        self._stop = asyncio.Event()
        self._missing = "starting"
        self._queue: WorkQueue[Key] = WorkQueue()
        self._cache = Cache()
        self._metrics = Metrics(self._queue, self._cache)
        self._endpoints = Endpoints(self._metrics.registry, ready=lambda: self._missing)

    @property
    def ready(self) -> bool:
        """Whether backends are being served."""
        return not self._missing

    @property
    def ports(self) -> list[int]:
        """The ports of health and metrics, once listening."""
        return list(self._endpoints.ports)

    def stop(self) -> None:
        """Ask the operator to end."""
        self._stop.set()

    async def run(self) -> None:
        """Run until asked to end.

        Raises:
            StartFailed: A permission or the CRD is missing.
            KubeError: The configuration or the drain key is unusable.
            OSError: A port cannot be had.
        """
        settings = self._settings
        self._handle_signals()
        configuration = await connection.load(settings.kubeconfig or connection.kubeconfig_path())
        client = KubernetesClient(configuration, observe=self._metrics.requested)
        try:
            await self._endpoints.start(
                settings.listen_address, health_port=settings.health_port, metrics_port=settings.metrics_port
            )
            started = await self._until_stopped(self._start(client))
            if started is not None:
                await self._serve(client, started, configuration)
        finally:
            await self._endpoints.stop()
            await client.close()

    def _handle_signals(self) -> None:
        for number in self._signals:
            asyncio.get_running_loop().add_signal_handler(number, self.stop)

    async def _until_stopped(self, coroutine: Coroutine[None, None, T]) -> T | None:
        """Return the result, or None when asked to end before it is there."""
        task = asyncio.create_task(coroutine)
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait((task,))
        return None

    async def _start(self, client: Client) -> BuildSettings:
        """Prepare until it succeeds: for ever while the API server is away, for a while when something is missing."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.start_patience_seconds
        while True:
            try:
                return await self._prepare(client)
            except StartFailed as error:
                if loop.time() > deadline:
                    raise
                self._wait_for(str(error))
            except (Unavailable, TooManyRequests) as error:
                self._wait_for(str(error))
            await asyncio.sleep(START_RETRY_SECONDS)

    async def _prepare(self, client: Client) -> BuildSettings:
        settings = self._settings
        try:
            await audit(client, self._cache, self._queue, namespaces=settings.watch_namespaces)
        except NotFound as error:
            raise StartFailed(f"the kind {LLM_BACKEND} is not installed; apply deploy/install.yaml") from error
        except Forbidden as error:
            raise StartFailed(f"a permission is missing, apply the roles in deploy/install.yaml: {error}") from error
        try:
            key = await drainkey.ensure(client, settings.namespace, random_bytes=secrets.token_bytes)
        except (NotFound, Forbidden) as error:
            raise StartFailed(
                f"the drain key cannot be kept in namespace {settings.namespace}, see --namespace: {error}"
            ) from error
        return BuildSettings(limiter_image=settings.image, drain_key=key)

    def _wait_for(self, missing: str) -> None:
        if missing != self._missing:
            _log.warning("waiting: %s", missing)
        self._missing = missing

    async def _serve(self, client: Client, build_settings: BuildSettings, configuration: Configuration) -> None:
        reconciler = Reconciler(client, self._cache, build_settings)
        backoff: Backoff[Key] = Backoff(random=random.random)
        # Made before kopf starts: at its end kopf cancels every task that is younger than itself.
        workers = [
            asyncio.create_task(
                work(self._queue, reconciler.reconcile, backoff, observe=self._metrics.reconciled),
                name=f"worker-{number}",
            )
            for number in range(self._settings.workers)
        ]
        auditor = asyncio.create_task(self._audit(client, build_settings.drain_key), name="auditor")
        self._missing = ""
        _log.info("serving %s", ", ".join(self._settings.watch_namespaces) or "all namespaces")
        try:
            await source.run(
                configuration,
                self._cache,
                self._queue,
                namespaces=self._settings.watch_namespaces,
                stop=self._stop,
                on_started=self._handle_signals,
                on_stopping=self._endpoints.stop,
            )
        finally:
            self._missing = "stopping"
            auditor.cancel()
            self._queue.close()
            _done, late = await asyncio.wait(workers, timeout=WORKERS_STOP_SECONDS)
            for worker in late:
                worker.cancel()
            await asyncio.gather(auditor, *workers, return_exceptions=True)

    async def _audit(self, client: Client, drain_key: bytes) -> None:
        # The first one is early: it finds what vanished between the list at the start and the begin of the watches.
        delay = min(FIRST_AUDIT_SECONDS, self._settings.resync_seconds)
        while True:
            await asyncio.sleep(delay)
            delay = self._settings.resync_seconds * random.uniform(1 - RESYNC_SPREAD, 1 + RESYNC_SPREAD)
            try:
                await audit(client, self._cache, self._queue, namespaces=self._settings.watch_namespaces)
                await self._keep(client, drain_key)
            except KubeError as error:
                _log.warning("the comparison with the cluster failed and is tried again later: %s", error)

    async def _keep(self, client: Client, drain_key: bytes) -> None:
        """Put a deleted drain key back: an operator that starts without it makes another, which rolls all replicas."""
        found = await drainkey.ensure(client, self._settings.namespace, random_bytes=lambda _count: drain_key)
        if found != drain_key:
            _log.warning(
                "Secret %s/%s holds another drain key than this operator works with; a restart takes it over and "
                "rolls all replicas",
                self._settings.namespace,
                drainkey.SECRET_NAME,
            )


def run(settings: OperatorSettings) -> None:
    """Run the operator in this process until SIGTERM or SIGINT.

    Raises:
        StartFailed: A permission or the CRD is missing.
        KubeError: The configuration or the drain key is unusable.
        OSError: A port cannot be had.
        WatchFailed: The event source has failed for good.
    """
    asyncio.run(_main(settings))


async def _main(settings: OperatorSettings) -> None:
    await Operator(settings, handle_signals=True).run()
    _log.info("stopped")
