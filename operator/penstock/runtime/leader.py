"""What only the leader does: it keeps the installation's keys, and works on the queue.

The queue has been filled since the process began, by the first list and by every event, so a replica that takes over
looks at every backend at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from penstock.api.engine import EngineType
from penstock.kube.client import Client
from penstock.kube.events import Recorder
from penstock.reconcile.backoff import Backoff
from penstock.reconcile.cache import Cache
from penstock.reconcile.discovery import Discovery
from penstock.reconcile.queue import WorkQueue
from penstock.reconcile.reconciler import Reconciler
from penstock.reconcile.worker import work
from penstock.resources.objects import Key, Object
from penstock.resources.settings import BuildSettings
from penstock.runtime.installationkeys import InstallationKeys
from penstock.runtime.metrics import Metrics
from penstock.runtime.settings import OperatorSettings
from penstock.runtime.slowloop import SlowLoop
from penstock.runtime.supervision import first_end
from penstock.status.change import Transition

WORKERS_STOP_SECONDS = 4.0

_log = logging.getLogger(__name__)


class Leader:
    """See the module's docstring.

    Args:
        client: The API server; its writes pass the fence.
        cache: What is known.
        queue: What to look at.
        settings: The operator's.
        discovery: What the cluster serves.
        instance: Name of this process.
        metrics: Told of every reconcile and Event.
        may_push: Whether this operator leads, right now.
        epoch: How often the Lease has changed hands.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache,
        queue: WorkQueue[Key],
        settings: OperatorSettings,
        discovery: Discovery,
        *,
        instance: str,
        metrics: Metrics,
        may_push: Callable[[], bool],
        epoch: Callable[[], int],
    ) -> None:
        self._client = client
        self._cache = cache
        self._queue = queue
        self._settings = settings
        self._discovery = discovery
        self._metrics = metrics
        self._may_push = may_push
        self._epoch = epoch
        self._recorder = Recorder(client, instance=instance, observe=metrics.recorded)
        self._keys = InstallationKeys(client, settings.namespace, interval_seconds=settings.resync_seconds)
        self._grace_seconds = WORKERS_STOP_SECONDS

    async def prepare(self) -> None:
        """Read the installation's keys, or make them.

        Raises:
            KubeError: One cannot be read or made.
        """
        await self._keys.prepare()

    async def run(self) -> None:
        """Work until cancelled; then what is under way is finished, within seconds.

        Raises:
            TaskEnded: A task of which the work depends has ended.
        """
        assert self._keys.push is not None  # noqa: S101 - prepared
        slow_loop = SlowLoop(
            self._settings, self._keys.push, may_push=self._may_push, epoch=self._epoch, changed=self._queue.add
        )
        self._metrics.watch_fleet(slow_loop.fleet, slow_loop.pusher)
        reconciler = Reconciler(
            self._client,
            self._cache,
            self._build_settings(),
            facts=lambda: self._discovery.facts,
            max_concurrent_rollouts=self._settings.max_concurrent_rollouts,
            announce=self._announce,
            fleet=slow_loop.fleet,
        )
        recording = asyncio.create_task(self._recorder.run(), name="recorder")
        keeping = asyncio.create_task(self._keys.keep(), name="keys")
        backoff: Backoff[Key] = Backoff(random=random.random)
        workers = [
            asyncio.create_task(
                work(self._queue, reconciler.reconcile, backoff, observe=self._metrics.reconciled),
                name=f"worker-{number}",
            )
            for number in range(self._settings.workers)
        ]
        try:
            await first_end((keeping, recording, *workers))
        finally:
            self._queue.close()
            await slow_loop.close()
            _done, late = await asyncio.wait(workers, timeout=self._grace_seconds)
            for task in (keeping, recording, *late):
                task.cancel()
            await asyncio.gather(keeping, recording, *workers, return_exceptions=True)

    def abandon(self) -> None:
        """End without grace: whatever is under way may not be written any more."""
        self._grace_seconds = 0.0

    def _build_settings(self) -> BuildSettings:
        settings = self._settings
        images = {EngineType.VLLM: settings.default_vllm_image, EngineType.LLAMA_CPP: settings.default_llama_cpp_image}
        return BuildSettings(
            limiter_image=settings.image,
            drain_key=self._keys.drain,
            platform=settings.platform,
            default_images={engine: image for engine, image in images.items() if image},
            namespace=settings.namespace,
            push_public_keys=(self._keys.push.public,) if self._keys.push else (),
        )

    def _announce(self, backend: Object, transition: Transition) -> None:
        self._recorder.record(backend, reason=transition.reason, message=transition.message, warning=transition.warning)
