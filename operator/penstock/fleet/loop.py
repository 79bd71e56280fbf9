"""The slow loop: for each backend one round every interval, which reads signals, asks the law, and pushes.

Theory of operation. Every backend has two tasks of its own, one for its rounds and one for what is new, so no backend
waits for another, and news does not wait for a round that is reading; what they share (connections, queries) has its
own bounds.

    what is new                          | what is done
    -------------------------------------|---------------------------------------------------------
    an interval has passed               | a round: read, decide, push what is new or older than two rounds
    the policy, or which are ready       | a push of what is in force, at once
    the same, and no limiter has         | a round soon, since what is in force is not known yet
    answered so far                      |
    nothing                              | nothing: a status that says the same is not written again

Only the leader has a loop: it begins with nothing in memory, and what it has decided before is in the limiters.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from penstock.fleet.member import Member, Pushes
from penstock.fleet.signals import Replica, SignalSource
from penstock.fleet.target import FleetTarget, FleetView
from penstock.resources.objects import Key

JITTER = 0.1
TTL_ROUNDS = 4
STEPS = 15
"""Times in an interval at which rounds begin; with the usual interval one a second."""

GATHER_SECONDS = 0.05
"""How long a push waits for what else is new."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Seat:
    """A backend in the fleet.

    Attributes:
        member: What is known of it.
        news: Set when there is something to push.
        early: Set when the next round is not to be waited for.
        tasks: Its own.
        told: The view of which somebody was told last.
    """

    member: Member
    news: asyncio.Event = field(default_factory=asyncio.Event)
    early: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: tuple[asyncio.Task[None], ...] = ()
    told: FleetView | None = None


class Fleet:
    """See the module's docstring.

    Args:
        direct: Reads limiters.
        prometheus: Reads Prometheus; None when there is none.
        pushes: Sends limits.
        interval_seconds: Between the rounds of a backend; each wait is varied by a tenth, and then lengthened to the
            next of the times at which rounds begin.
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
        self._seats: dict[Key, _Seat] = {}
        self._closed = False

    def observe(self, key: Key, target: FleetTarget) -> None:
        """Take note of a backend as it is now; once closed, of nothing."""
        if self._closed:
            return
        seat = self._seats.get(key)
        if seat is not None and seat.member.target.uid == target.uid:
            self._update(seat, target)
            return
        self.forget(key)
        member = Member(
            str(key),
            key.namespace,
            target,
            direct=self._direct,
            prometheus=self._prometheus,
            pushes=self._pushes,
            ttl_seconds=TTL_ROUNDS * self._interval_seconds,
            rounds=self.rounds,
        )
        seat = self._seats[key] = _Seat(member)
        seat.tasks = (
            asyncio.create_task(self._do_rounds(key, seat), name=f"rounds of {key}"),
            asyncio.create_task(self._serve_news(seat), name=f"news of {key}"),
        )

    def observe_replicas(self, key: Key, replicas: tuple[Replica, ...]) -> None:
        """Take note of a backend's pods when its spec cannot be understood: what it said before still holds."""
        seat = self._seats.get(key)
        if seat is not None:
            self._update(seat, replace(seat.member.target, replicas=replicas))

    def _update(self, seat: _Seat, target: FleetTarget) -> None:
        before, seat.member.target = seat.member.target, target
        seat.member.forget_pods({one.uid for one in before.replicas} - {one.uid for one in target.replicas})
        if (before.policy, before.ready) != (target.policy, target.ready):
            seat.news.set()

    def forget(self, key: Key) -> None:
        """A backend is gone."""
        seat = self._seats.pop(key, None)
        if seat is not None:
            seat.member.forget_pods({one.uid for one in seat.member.target.replicas})
            for task in seat.tasks:
                task.cancel()

    def view(self, key: Key) -> FleetView | None:
        """Return what the last round has made of a backend; None before the first."""
        seat = self._seats.get(key)
        return None if seat is None else seat.member.view

    def views(self) -> dict[Key, FleetView]:
        """Return those of all backends that have one."""
        return {key: seat.member.view for key, seat in self._seats.items() if seat.member.view is not None}

    async def close(self) -> None:
        """End all rounds, for good: what they stand on is closed next."""
        self._closed = True
        tasks = [task for seat in self._seats.values() for task in seat.tasks]
        for key in list(self._seats):
            self.forget(key)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _do_rounds(self, key: Key, seat: _Seat) -> None:
        """Do a backend's rounds until cancelled; the first comes soon, so that a new leader knows what is."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._spread(0.0, min(1.0, self._interval_seconds))
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await seat.early.wait()
            seat.early.clear()
            await self._safely(seat.member, seat.member.round())
            view = seat.member.view
            if view is not None and view.is_news_after(seat.told):
                seat.told = view
                self._changed(key)
            due = self._together(loop.time() + self._interval_seconds * self._spread(1 - JITTER, 1 + JITTER))

    async def _serve_news(self, seat: _Seat) -> None:
        """Push what is new until cancelled."""
        while True:
            await seat.news.wait()
            await asyncio.sleep(GATHER_SECONDS)
            seat.news.clear()
            if seat.member.has_begun:
                await self._safely(seat.member, seat.member.push())
            else:
                seat.early.set()

    def _together(self, due: float) -> float:
        """Put off a round until those that are due soon after: waking up for each would cost more than the round."""
        step = self._interval_seconds / STEPS
        return math.ceil(due / step) * step

    async def _safely(self, member: Member, work: Awaitable[None]) -> None:
        """Do it; a defect that one backend meets must not end its rounds, nor those of others."""
        try:
            await work
        except Exception:
            _log.exception("the slow loop of %s broke; please report this", member.name)
