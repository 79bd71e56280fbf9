"""The operator's process: what starts after what, and what ends before what.

Start: listen (so that probes are answered), wait for the API server and the CRD, list everything once. From then on
this replica stands by, ready and with everything known. When it gets the Lease it makes or reads the drain key and
works. End, on SIGTERM or SIGINT: workers finish what they are at, the Lease is given back, watches and endpoints end.
When the Lease is lost everything ends at once, and the process with an error: nothing of a former leader's state is
worth keeping, and a fresh process knows what is. The state of the world is in the cluster, so nothing has to be saved.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import signal
import socket
import time
import uuid
from collections.abc import Awaitable, Callable

from penstock.kube import connection
from penstock.kube.candidacy import Timing
from penstock.kube.client import KubernetesClient
from penstock.kube.election import Elector
from penstock.kube.errors import Conflict, Forbidden, NotFound, TooManyRequests, Unavailable
from penstock.kube.kinds import LLM_BACKEND
from penstock.kube.lease import KubernetesLease
from penstock.kube.pace import Pace
from penstock.reconcile.cache import Cache
from penstock.reconcile.queue import WorkQueue
from penstock.resources.objects import Key
from penstock.runtime import ending
from penstock.runtime.endpoints import Endpoints
from penstock.runtime.keeper import Keeper
from penstock.runtime.leader import Leader
from penstock.runtime.metrics import Metrics
from penstock.runtime.settings import OperatorSettings
from penstock.runtime.supervision import first_end

START_RETRY_SECONDS = 1.0
CLOSE_SECONDS = 0.1
GC_THRESHOLDS = (20_000, 20, 50)
LEASE_CONNECTIONS = 2
LEASE_TRIES_PER_DEADLINE = 3

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
        self._told = ""
        self._queue: WorkQueue[Key] = WorkQueue()
        self._cache = Cache()
        self._keeper: Keeper | None = None
        self._elector: Elector | None = None
        self._leading = False
        self._answered_at = float("-inf")
        self._metrics = Metrics(
            self._queue,
            self._cache,
            leading=lambda: self._leading,
            oldest_watch=lambda: self._keeper.oldest_watch_seconds if self._keeper else 0.0,
        )
        self._endpoints = Endpoints(self._metrics.registry, unready=self._unready, sick=self._sick)

    @property
    def ready(self) -> bool:
        """Whether backends are served, or would be at once if the leader were gone."""
        return not self._unready()

    @property
    def leading(self) -> bool:
        """Whether this replica is the one that works."""
        return self._leading

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
            LeadershipLost: Another replica leads or may lead.
            TaskEnded: A part of it has ended that must not.
            KubeError: The configuration or the drain key is unusable.
            OSError: A port cannot be had.
        """
        self._handle_signals()
        running = asyncio.create_task(self._run(), name="operator")
        stopping = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            running.cancel()
            await asyncio.wait((running,))
        if not running.cancelled():
            running.result()

    async def _run(self) -> None:
        settings = self._settings
        async with contextlib.AsyncExitStack() as stack:
            # A connection whose request was cut short closes in the loop's next turns, and there have to be some.
            stack.push_async_callback(asyncio.sleep, CLOSE_SECONDS)
            stack.push_async_callback(self._endpoints.stop)
            configuration = await connection.load(settings.kubeconfig or connection.kubeconfig_path())
            await self._endpoints.start(
                settings.listen_address, health_port=settings.health_port, metrics_port=settings.metrics_port
            )
            timing = Timing(
                duration=settings.lease_duration_seconds,
                deadline=settings.lease_renew_deadline_seconds,
                retry=settings.lease_retry_seconds,
            )
            # The Lease has connections of its own: its renewal waits behind nothing, and no fence can be before it.
            lease_client = KubernetesClient(
                configuration,
                observe=self._requested,
                connections=LEASE_CONNECTIONS,
                timeout_seconds=timing.deadline / LEASE_TRIES_PER_DEADLINE,
            )
            stack.push_async_callback(lease_client.close)
            lease = KubernetesLease(lease_client, Key(settings.namespace, settings.lease_name))
            identity = f"{socket.gethostname()}_{uuid.uuid4()}"
            elector = self._elector = Elector(lease, identity, timing, random=random.random)
            client = KubernetesClient(
                configuration,
                observe=self._requested,
                guard=elector.fence.check,
                pace=Pace(writes_per_second=settings.write_rate, burst=max(1, int(settings.write_rate / 5))),
            )
            stack.push_async_callback(client.close)
            keeper = self._keeper = Keeper(
                client, configuration, self._cache, self._queue, settings, on_started=self._handle_signals
            )
            await self._patiently(keeper.fill, self._without_rights)
            self._missing = ""
            keeping = asyncio.create_task(keeper.run(), name="keeper")
            stack.push_async_callback(_end, keeping)
            leader = Leader(
                client,
                self._cache,
                self._queue,
                settings,
                keeper.discovery,
                instance=identity,
                metrics=self._metrics,
                may_push=lambda: elector.fence.open,
                epoch=lambda: elector.transitions,
            )
            leading = asyncio.create_task(self._lead(elector, leader), name="election")
            stack.push_async_callback(_end, leading)
            # Without the keeper a leader would sit there, healthy and deaf.
            await first_end((leading, keeping))

    async def _lead(self, elector: Elector, leader: Leader) -> None:
        """Stand by, then work until cancelled or until the Lease is lost."""
        await self._patiently(elector.acquire, self._without_a_home)
        self._leading = True
        holding = asyncio.create_task(elector.hold(), name="lease")
        working = asyncio.create_task(self._work(leader), name="leader")
        try:
            await asyncio.wait((holding, working), return_when=asyncio.FIRST_COMPLETED)
            if holding.done():
                elector.fence.shut()
                leader.abandon()
                holding.result()
        finally:
            # While the workers finish, the Lease is still renewed.
            working.cancel()
            await asyncio.wait((working,))
            self._leading = False
            lost = holding.done()
            await _end(holding)
            if not lost:
                await elector.release()
        working.result()

    async def _work(self, leader: Leader) -> None:
        await self._patiently(leader.prepare, self._without_a_home)
        _log.info("leading, and serving %s", ", ".join(self._settings.watch_namespaces) or "all namespaces")
        await leader.run()

    async def _patiently(
        self, step: Callable[[], Awaitable[None]], advice: Callable[[NotFound | Forbidden], str]
    ) -> None:
        """Do a step until it succeeds: for ever while the API server is away, for a while when something is missing."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.start_patience_seconds
        while True:
            try:
                await step()
            except (NotFound, Forbidden) as error:
                text = advice(error)
                if loop.time() > deadline:
                    raise StartFailed(text) from error
            except (Conflict, Unavailable, TooManyRequests) as error:
                text = str(error)
            else:
                return
            if text != self._told:
                _log.warning("waiting: %s", text)
            self._told = text
            if self._missing:
                self._missing = text
            await asyncio.sleep(START_RETRY_SECONDS)

    def _without_rights(self, error: NotFound | Forbidden) -> str:
        if isinstance(error, Forbidden):
            return f"a permission is missing, install the roles of this release again: {error}"
        return f"the kind {LLM_BACKEND} is not installed; apply the CRD of this release"

    def _without_a_home(self, error: NotFound | Forbidden) -> str:
        namespace = self._settings.namespace
        return f"the Lease and the drain key cannot be kept in namespace {namespace}, see --namespace: {error}"

    def _requested(self, verb: str, kind: str, result: str) -> None:
        if result == "ok":
            self._answered_at = time.monotonic()
        self._metrics.requested(verb, kind, result)

    def _unready(self) -> str:
        if self._missing or self._leading:
            return self._missing
        return "" if self._elector is not None and self._elector.in_touch else "the Lease could not be read lately"

    def _sick(self) -> str:
        """Tell of a watch that is dead; while the API server is away no watch can live, and a restart helps nobody."""
        silent = self._keeper.oldest_watch_seconds if self._keeper is not None else 0.0
        answers = time.monotonic() - self._answered_at < self._settings.lease_duration_seconds
        if answers and silent > self._settings.watch_patience_seconds:
            return f"a watch has shown no sign of life for {silent:.0f} s, and the API server answers"
        return ""

    def _handle_signals(self) -> None:
        for number in self._signals:
            asyncio.get_running_loop().add_signal_handler(number, self.stop)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def run(settings: OperatorSettings) -> None:
    """Run the operator in this process until SIGTERM or SIGINT; raises what `Operator.run` raises.

    It returns or raises within seconds of the operator's end, or the process ends, see `runtime.ending`.
    """
    # What is imported by now lives as long as the process, and what is kept of the cluster for long: looking through
    # both for cycles at the usual pace costs much and finds nothing.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    runner = asyncio.Runner()
    try:
        runner.run(_main(settings))
    finally:
        ending.end(runner)


async def _main(settings: OperatorSettings) -> None:
    await Operator(settings, handle_signals=True).run()
    _log.info("stopped")
