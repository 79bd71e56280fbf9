"""One pass over one backend: observe, plan, act, report.

Level-based: a pass looks at what is, never at what happened, so a lost or repeated event costs nothing but time. What
is desired comes from `resources` and what status says from `status`, both pure; this module fetches, applies and
writes, and decides nothing else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.api.backend import LLMBackend
from penstock.api.conditions import Reason
from penstock.api.errors import InvalidBackend
from penstock.fleet.loop import Fleet
from penstock.kube.client import Client
from penstock.kube.errors import KubeError, TooManyRequests
from penstock.kube.kinds import LLM_BACKEND, POD
from penstock.reconcile.cache import Cache
from penstock.reconcile.children import Children
from penstock.reconcile.fleettarget import fleet_target, replicas_of
from penstock.reconcile.hindrance import Blocked, Gone
from penstock.reconcile.outcome import Done, Failed, Outcome, RequeueAfter
from penstock.reconcile.patience import TELL_SECONDS, Patience, look_again_seconds
from penstock.reconcile.report import SETTLE_SECONDS, Report, Reporter, soonest
from penstock.reconcile.templates import Templates
from penstock.reconcile.turns import Turns
from penstock.resources import children, configmap
from penstock.resources.facts import UNKNOWN, ClusterFacts
from penstock.resources.objects import Key, Object, is_terminating
from penstock.resources.settings import BuildSettings
from penstock.rollout.pacing import MAX_CONCURRENT_ROLLOUTS
from penstock.status.change import Transition
from penstock.status.trouble import Trouble

AT_ONCE_SECONDS = 0.0

BLOCKED_SECONDS = 5.0
"""How often a taken name or a full quota is looked at again: no event tells when it goes."""

LONGEST_PAUSE_SECONDS = 60.0
"""A backend for which the API server asks for a longer pause is tried again after this."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Result:
    """How applying ended: the outcome for the queue, and what status has to say about it."""

    outcome: Outcome
    trouble: Trouble | None = None
    applied: bool = True


class Reconciler:
    """Reconciles backends by key.

    Args:
        client: The API server.
        cache: What was observed; own writes are entered at once.
        settings: What the builders need besides the backend.
        facts: Returns what is known of the cluster now.
        max_concurrent_rollouts: How many backends may be replacing replicas at a time before an upgrade has to wait.
        settle_seconds: How long after a write of status a sharper picture waits.
        announce: Told of a backend and what of it is worth an Event.
        fleet: Told of backends and their replicas; its limits are in their status.
        now: The wall clock, for conditions.
        clock: A clock that never goes back, in seconds.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache,
        settings: BuildSettings,
        *,
        facts: Callable[[], ClusterFacts] = lambda: UNKNOWN,
        max_concurrent_rollouts: int = MAX_CONCURRENT_ROLLOUTS,
        settle_seconds: float = SETTLE_SECONDS,
        announce: Callable[[Object, Transition], None] = lambda _backend, _transition: None,
        fleet: Fleet | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._cache = cache
        self._settings = settings
        self._read_facts = facts
        self._announce = announce
        self._fleet = fleet
        self._now = now
        self._children = Children(client, cache, clock=clock)
        self._patience: Patience[Key] = Patience(clock)
        self._templates = Templates(client, cache, Turns(cache, maximum=max_concurrent_rollouts))
        self._reporter = Reporter(
            client,
            cache,
            settle_seconds=settle_seconds,
            view=fleet.view if fleet is not None else lambda _key: None,
            now=now,
            clock=clock,
        )

    @property
    def _facts(self) -> ClusterFacts:
        return self._read_facts()

    async def reconcile(self, key: Key) -> Outcome:
        """Bring one backend's children and status to what they should be; never raises what the cluster may answer."""
        raw = self._cache.get(LLM_BACKEND, key)
        if raw is None or is_terminating(raw):
            # The garbage collector takes the children, by their owner references.
            self._children.forget(key)
            self._templates.forget(key)
            self._reporter.forget(key)
            self._patience.over(key)
            if self._fleet is not None:
                self._fleet.forget(key)
            return Done()
        try:
            return await self._pass(key, raw)
        except TooManyRequests as error:
            reached = self._children.reached(key)
            pause = min(error.retry_after_seconds, LONGEST_PAUSE_SECONDS)
            return Failed(str(error), retry_after_seconds=pause, reached=reached)
        except KubeError as error:
            return Failed(str(error), reached=self._children.reached(key))

    async def _pass(self, key: Key, raw: Object) -> Outcome:
        backend, trouble = _understand(raw, self._facts)
        pods = self._cache.of_backend(key, POD)
        if backend is None:
            if self._fleet is not None:
                self._fleet.observe_replicas(key, replicas_of(pods))
            report = self._announced(await self._report(key, raw, None, trouble=trouble))
            return _outcome(Done(), report)
        if not raw.get("status", {}).get("conditions"):
            # Tools take an object without conditions for finished, so this comes before the children.
            first = self._announced(await self._report(key, raw, backend))
            if first.overtaken:
                # What follows would report the old spec under the new one's generation.
                return RequeueAfter(AT_ONCE_SECONDS)
            raw = first.backend
        if self._fleet is not None:
            self._fleet.observe(key, fleet_target(backend, pods, policy=configmap.policy(backend, self._settings)))
        result = await self._act(key, raw, backend)
        report = await self._report(key, raw, backend, trouble=result.trouble, applied=result.applied)
        return _outcome(result.outcome, self._announced(report))

    def _announced(self, report: Report) -> Report:
        if report.transition is not None:
            self._announce(report.backend, report.transition)
        return report

    async def _act(self, key: Key, raw: Object, backend: LLMBackend) -> _Result:
        """Apply what is desired; a backend that is paused keeps the children it has."""
        if backend.spec.paused:
            return _Result(outcome=Done(), applied=self._templates.is_current(key, backend))
        settings, facts = self._settings, self._facts
        try:
            plan = await self._templates.plan(key, raw, backend, settings=settings, facts=facts)
            revision = plan.revision
            desired = children.build(backend, settings, facts, revision.template, revision=revision.name)
            desired = plan.with_history(backend, desired)
            wait = await self._children.converge(raw["metadata"]["uid"], key, desired, kept=plan.kept)
        except Gone as gone:
            lasted = self._patience.lasted_seconds(key)
            _log.info("%s: %s", key, gone)
            trouble = gone.trouble if lasted >= TELL_SECONDS else None
            return _Result(outcome=RequeueAfter(look_again_seconds(lasted)), trouble=trouble)
        except Blocked as blocked:
            self._patience.over(key)
            return _Result(outcome=_retry(blocked), trouble=blocked.trouble)
        finally:
            self._templates.done(key)
        self._patience.over(key)
        wait = soonest(wait, plan.wait.ask_again_seconds if plan.wait is not None else None)
        return _Result(outcome=Done() if wait is None else RequeueAfter(wait))

    async def _report(
        self,
        key: Key,
        raw: Object,
        backend: LLMBackend | None,
        *,
        trouble: Trouble | None = None,
        applied: bool = True,
    ) -> Report:
        """Write status if it has something new to say."""
        return await self._reporter.report(key, raw, backend, trouble=trouble, applied=applied, facts=self._facts)


def _understand(raw: Object, facts: ClusterFacts) -> tuple[LLMBackend | None, Trouble | None]:
    try:
        backend = LLMBackend.parse(raw)
        problems = children.check(backend, facts)
        if problems:
            raise InvalidBackend(problems)
    except InvalidBackend as error:
        return None, Trouble(reason=Reason.INVALID_SPEC, message=str(error), stalled=True)
    return backend, None


def _retry(blocked: Blocked) -> Outcome:
    """Return when to try again what could not be applied."""
    if blocked.trouble.reason in (Reason.NAME_TAKEN, Reason.QUOTA_EXCEEDED):
        # The name may become free and the quota be raised at any time, and no event tells: a steady look finds it soon.
        return RequeueAfter(BLOCKED_SECONDS)
    # What the API server has called invalid stays so until the spec changes, and that is told.
    return Failed(str(blocked)) if blocked.retry else Done()


def _outcome(outcome: Outcome, report: Report) -> Outcome:
    """Return when to look again: as applying has ended, or earlier if status asks for it.

    At once when the backend has changed during the pass: no event will tell, and what failed was for another spec.
    """
    if report.overtaken:
        return RequeueAfter(AT_ONCE_SECONDS)
    if isinstance(outcome, Failed):
        return outcome
    seconds = soonest(outcome.seconds if isinstance(outcome, RequeueAfter) else None, report.look_again_seconds)
    return RequeueAfter(seconds) if seconds is not None else outcome
