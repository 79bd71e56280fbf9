"""One replica's limiter: the parts, and how they tell each other what happens.

poller -- look --> readiness, drainer          relay -- refused, suspect --> poller
admission -- idle --> drainer                  drainer -- state --> relay (admits, leaving), poller (fast)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from pathlib import Path

from penstock.api.engine import EngineType
from penstock.api.policy import Policy
from penstock.api.replica import ReplicaSettings
from penstock.engines.facts import EngineFacts
from penstock.limiter.admin import Admin
from penstock.limiter.admission import Admission
from penstock.limiter.bodybudget import BodyBudget
from penstock.limiter.concurrency import Engine
from penstock.limiter.config import POLICY_INTERVAL_SECONDS, PolicyFile
from penstock.limiter.connection import Connection
from penstock.limiter.drain import Event, Phase, State
from penstock.limiter.drainer import Drainer, Hands
from penstock.limiter.engine import Poller, Sight
from penstock.limiter.inforce import InForce
from penstock.limiter.lingering import Lingering
from penstock.limiter.listener import Listener, bind
from penstock.limiter.loop import running_loop
from penstock.limiter.metrics import Metrics
from penstock.limiter.overflow import ADMIN_CONNECTIONS_LIMIT, Overflow, connection_limit, open_files_limit
from penstock.limiter.pushed import Pushes
from penstock.limiter.refusal import Reason
from penstock.limiter.relay import Relay
from penstock.limiter.service import MEBIBYTE_BYTES, Service, Times
from penstock.limiter.signals import Signals
from penstock.limiter.transport import Transport
from penstock.limiter.upstream import Pool

logger = logging.getLogger(__name__)

ENGINE_HOST = "127.0.0.1"
FLUSH_SECONDS = 0.8

_EVENTS = {Sight.GONE: Event.ENGINE_GONE, Sight.HEALTHY: Event.ENGINE_READY}


class Limiter:
    """Everything of one replica.

    Attributes:
        admission, relay, admin, poller, drainer, policy, pushes, metrics: The parts.
        connection_limit: How many connections clients may have.
        listening: Set once both ports are open.
        stopped: Set when the process should end.
    """

    def __init__(
        self,
        settings: ReplicaSettings,
        *,
        facts: EngineFacts,
        body_budget_bytes: int,
        times: Times | None = None,
        on_policy: Callable[[Policy], None] | None = None,
    ) -> None:
        self._settings = settings
        self._loop = loop = running_loop()
        self._times = times or Times()
        self._on_policy = on_policy
        self.connection_limit = connection_limit(
            descriptors=open_files_limit(), memory_bytes=settings.memory_limit_bytes
        )
        self.listening = asyncio.Event()
        self.stopped = asyncio.Event()
        self.admission = Admission(
            loop=loop,
            engine=Engine(settings.engine_type, settings.max_concurrency or facts.default_concurrency),
            context_tokens=settings.context_length or facts.default_context_tokens,
            tenants_path=settings.tenants_path,
            backend_uid=settings.backend_uid,
            store_url_path=settings.store_url_path,
        )
        pool = Pool(ENGINE_HOST, settings.engine_port, idle_seconds=facts.idle_connection_seconds, loop=loop)
        self.relay = Relay(
            loop=loop,
            pool=pool,
            admission=self.admission,
            budget=BodyBudget(body_budget_bytes),
            allowed_paths=facts.allowed_paths,
            reuse_after_stream=facts.reuse_after_stream,
            read_seconds=self._times.engine_read_seconds,
        )
        self.poller = Poller(facts=facts, pool=pool, loop=loop)
        self.drainer = Drainer(
            hands=Hands(
                in_flight=self._requests,
                engine_ready=lambda: self.poller.view.ready,
                cut=lambda: self.relay.cut_all(
                    Reason.DRAINING, "This replica is going away before the answer was complete."
                ),
                exit=self.stopped.set,
                changed=self._drain_changed,
            ),
            loop=loop,
            lame_duck_seconds=settings.lame_duck_seconds,
            timeout_seconds=settings.drain_timeout_seconds,
        )
        self.signals = Signals(self.admission.gate, self.admission.first_tokens, self.poller, facts.metrics)
        self.policy = PolicyFile(Path(settings.policy_path))
        self.pushes = Pushes(backend_uid=settings.backend_uid, pod_uid=settings.pod_uid, now=self.admission.now)
        self._in_force = InForce(self.policy, self.pushes, self.admission, configure=self._configure)
        self.admin = Admin(self, token_sha256=settings.drain_token_sha256, loop=loop)
        self.metrics = Metrics(self)
        self.admission.room.on_idle = lambda: self.drainer.handle(Event.IDLE)
        self.relay.on_refused = self.poller.refused
        self.relay.on_suspect = self.poller.suspect
        self.poller.on_change = self._engine_changed
        if settings.engine_type is EngineType.LLAMA_CPP:
            self.admission.lingering = lingering = Lingering(
                loop, self.admission.gate, names=facts.metrics.running.names
            )
            lingering.look_soon = self.poller.look_soon
            lingering.on_return = self.admission.room.advance
            self.admission.room.abandoned = lingering.requests
            self.poller.on_metrics = lingering.seen

    async def run(self, *, host: str | None = None) -> None:
        """Serve until `terminate` was called and everything is flushed.

        Args:
            host: Address to listen on; all when None.

        Raises:
            OSError: a port is taken.
            Exception: work in the background failed, which is a defect: without it the replica would serve blindly.
        """
        self.refresh_policy()
        self.admission.refresh_keys()
        tasks = [
            asyncio.create_task(work)
            for work in (
                self.poller.run(),
                self.metrics.watch_lag(),
                self._watch_policy(),
                self.admission.store.run(),
            )
        ]
        listeners: list[Listener] = []
        try:
            listeners += self._listen(self.relay, host, self._settings.api_port, limit=self.connection_limit)
            listeners += self._listen(self.admin, host, self._settings.admin_port, limit=ADMIN_CONNECTIONS_LIMIT)
            logger.info("listening api_port=%d admin_port=%d", self._settings.api_port, self._settings.admin_port)
            self.listening.set()
            await self._stopped_or_failed(tasks)
        finally:
            for listener in listeners:
                listener.close()
            await self._flush()
            if self.admission.lingering is not None:
                self.admission.lingering.close()

    def terminate(self) -> None:
        """SIGTERM: end what is open with an error and stop."""
        self.drainer.handle(Event.TERMINATE)

    def refresh_policy(self) -> None:
        """Put in force what the policy file and the last push say by now."""
        self._in_force.refresh()

    def not_ready(self) -> list[str]:
        """Return why the replica should get no new requests; empty when it should."""
        reasons = []
        if not self.policy.loaded:
            reasons.append(f"no valid policy yet ({self.policy.problem})")
        keys = self.admission.keys
        if keys is not None and not keys.loaded:
            reasons.append(f"no valid API keys yet ({keys.problem})")
        if self.drainer.state.phase is not Phase.ACCEPTING:
            reasons.append(f"drain state is {self.drainer.state.phase}")
        if not self.poller.view.ready:
            reasons.append("the engine is not healthy")
        return reasons

    def state(self) -> dict[str, object]:
        """Return what `/state` shows."""
        view = self.poller.view
        return {
            "backend": f"{self._settings.backend_namespace}/{self._settings.backend_name}",
            "bootId": self.pushes.acceptance.boot_id,
            "ready": not self.not_ready(),
            "notReady": self.not_ready(),
            **self.admission.state(),
            "pushed": self.pushes.state(),
            "signals": self.signals.state(self._loop.time()),
            "drain": self.drainer.state.phase,
            "engine": {
                "type": self._settings.engine_type,
                "ready": view.ready,
                "lastSeen": view.last,
                "metricsFresh": self.poller.metrics is not None,
            },
            "policy": {
                "source": self._in_force.source,
                "loaded": self.policy.loaded,
                "problem": self.policy.problem,
                "unknownKeys": list(self.policy.unknown_keys)[:10],
                "waitsForKeys": self._in_force.waits_for_keys,
            },
        }

    def _configure(self, policy: Policy) -> None:
        self.relay.body_limit_bytes = policy.maximum_body_mebibytes * MEBIBYTE_BYTES
        self.admission.configure(policy)
        if self._on_policy is not None:
            self._on_policy(policy)

    def _requests(self) -> int:
        """Return for how many generation requests somebody waits, at the engine or in front of it."""
        room = self.admission.room
        return self.admission.gate.in_flight - room.abandoned() + len(room)

    def _listen(self, service: Service, host: str | None, port: int, *, limit: int) -> list[Listener]:
        overflow = Overflow(self._loop, service.count_refusal)

        def accepted(sock: socket.socket) -> None:
            if len(service.connections) >= limit and not service.make_room():
                overflow.turn_away(sock)
                return
            Transport(self._loop, sock, Connection(service, self._loop, self._times))

        sockets = bind(host, port, question_seconds=self._times.question_seconds)
        return [Listener(self._loop, sock, accepted) for sock in sockets]

    async def _stopped_or_failed(self, tasks: list[asyncio.Task[None]]) -> None:
        """Wait until `stopped` is set; end the tasks that work in the background."""
        stopped = asyncio.create_task(self.stopped.wait())
        try:
            done, _ = await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (stopped, *tasks):
                task.cancel()
            await asyncio.gather(stopped, *tasks, return_exceptions=True)
        for task in done:
            task.result()

    async def _watch_policy(self) -> None:
        while True:
            await asyncio.sleep(POLICY_INTERVAL_SECONDS)
            self.signals.look(self._loop.time())
            self.refresh_policy()
            self.admission.refresh_keys()

    def _engine_changed(self, sight: Sight) -> None:
        if sight is Sight.GONE and self.admission.lingering is not None:
            self.admission.lingering.all_gone()
        event = _EVENTS.get(sight)
        if event is not None:
            self.drainer.handle(event)

    def _drain_changed(self, state: State) -> None:
        self.relay.admits = state.admits
        self.relay.closing = state.leaving
        self.poller.fast = state.phase in {Phase.DRAINED, Phase.RESTARTING}
        if self.poller.fast:
            self.poller.suspect()  # it may be in the middle of a long pause

    async def _flush(self) -> None:
        """Give clients a moment to take what was written, then end every connection."""
        self.relay.pool.close()
        connections = self.relay.connections | self.admin.connections
        for connection in connections:
            connection.transport.close()
        deadline = self._loop.time() + FLUSH_SECONDS
        for connection in connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await connection.closed.wait()
        for connection in connections:
            connection.transport.abort()
