"""The slow loop: for each backend one round every interval, which reads signals, asks the law, and pushes.

Theory of operation. Every backend has a task of its own that sleeps until its next round or until something is new, so
no backend waits for another; what they share (connections, queries) has its own bounds.

    what is new                          | what is done
    -------------------------------------|---------------------------------------------------------
    an interval has passed               | a round: read, decide, push what is new or older than two rounds
    the policy, or which are ready       | a push of what is in force, at once
    nothing                              | nothing: a status that says the same is not written again

Only the leader has a loop: it begins with nothing in memory, and what it has decided before is in the limiters.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

from penstock.fleet.member import Member, Pushes
from penstock.fleet.signals import Replica, SignalSource
from penstock.fleet.target import FleetTarget, FleetView
from penstock.resources.objects import Key

JITTER = 0.1
TTL_ROUNDS = 4
GATHER_SECONDS = 0.05
"""How long a push waits for what else is new."""

_log = logging.getLogger(__name__)


class Fleet:
    """See the module's docstring.

    Args:
        direct: Reads limiters.
        prometheus: Reads Prometheus; None when there is none.
        pushes: Sends limits.
        interval_seconds: Between the rounds of a backend; each wait is varied by a tenth.
        changed: Told of a backend whose view is worth a look at its status.

    Attributes:
        rounds: Rounds so far by the rule that decided, of backends that are gone too.
    """

    def __init__(
        self,
        *,
        direct: SignalSource,
        prometheus: SignalSource | None,
        pushes: Pushes,
        interval_seconds: float,
        changed: Callable[[Key], None],
        spread: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.rounds: Counter[str] = Counter()
        self._direct = direct
        self._prometheus = prometheus
        self._pushes = pushes
        self._interval_seconds = interval_seconds
        self._changed = changed
        self._spread = spread
        self._members: dict[Key, Member] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._news: dict[Key, asyncio.Event] = {}
        self._told: dict[Key, FleetView] = {}

    def observe(self, key: Key, target: FleetTarget) -> None:
        """Take note of a backend as it is now."""
        member = self._members.get(key)
        if member is not None and member.target.uid != target.uid:
            self.forget(key)
            member = None
        if member is None:
            member = self._members[key] = Member(
                str(key),
                key.namespace,
                target,
                direct=self._direct,
                prometheus=self._prometheus,
                pushes=self._pushes,
                ttl_seconds=TTL_ROUNDS * self._interval_seconds,
                rounds=self.rounds,
            )
            self._news[key] = asyncio.Event()
            self._tasks[key] = asyncio.create_task(self._serve(key, member, self._news[key]), name=f"fleet of {key}")
            return
        self._update(key, member, target)

    def observe_replicas(self, key: Key, replicas: tuple[Replica, ...]) -> None:
        """Take note of a backend's pods when its spec cannot be understood: what it said before still holds."""
        member = self._members.get(key)
        if member is not None:
            self._update(key, member, replace(member.target, replicas=replicas))

    def _update(self, key: Key, member: Member, target: FleetTarget) -> None:
        before, member.target = member.target, target
        member.forget_pods({one.uid for one in before.replicas} - {one.uid for one in target.replicas})
        if (before.policy, before.ready) != (target.policy, target.ready):
            self._news[key].set()

    def forget(self, key: Key) -> None:
        """A backend is gone."""
        member = self._members.pop(key, None)
        if member is not None:
            member.forget_pods({one.uid for one in member.target.replicas})
            self._news.pop(key)
            self._told.pop(key, None)
            self._tasks.pop(key).cancel()

    def view(self, key: Key) -> FleetView | None:
        """Return what the last round has made of a backend; None before the first."""
        member = self._members.get(key)
        return None if member is None else member.view

    def views(self) -> dict[Key, FleetView]:
        """Return those of all backends that have one."""
        return {key: member.view for key, member in self._members.items() if member.view is not None}

    async def close(self) -> None:
        """End all rounds."""
        tasks = list(self._tasks.values())
        for key in list(self._members):
            self.forget(key)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, key: Key, member: Member, news: asyncio.Event) -> None:
        """Do a backend's rounds until cancelled; the first comes soon, so that a new leader knows what is."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._spread(0.0, min(1.0, self._interval_seconds))
        while True:
            try:
                async with asyncio.timeout_at(due):
                    await news.wait()
                await asyncio.sleep(GATHER_SECONDS)
                news.clear()
                await self._safely(key, member.push())
                continue
            except TimeoutError:
                pass
            await self._safely(key, member.round())
            view = member.view
            if view is not None and view.is_news_after(self._told.get(key)):
                self._told[key] = view
                self._changed(key)
            due = loop.time() + self._interval_seconds * self._spread(1 - JITTER, 1 + JITTER)

    async def _safely(self, key: Key, work: Awaitable[None]) -> None:
        """Do it; a defect that one backend meets must not end its rounds, nor those of others."""
        try:
            await work
        except Exception:
            _log.exception("the slow loop of %s broke; please report this", key)
