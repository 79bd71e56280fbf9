"""Writes a backend's status when it has something new to say, and no more often than that.

The status is assessed from the cache alone. Only a backend that is not ready is looked at more closely, by reads on
demand (`observe`) and by watching over what refuses its pods (`obstacles`); both say when to look again, which is the
re-queue policy for all that no event tells.

A burst of events makes one write: what only sharpens the picture waits until `SETTLE_SECONDS` after the last write. And
a status that the API server has stored in another form than it was sent (a CRD that is older than this operator drops
what it does not know) is not sent again and again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from penstock.api.backend import LLMBackend
from penstock.api.conditions import ConditionType
from penstock.fleet.target import FleetView
from penstock.kube.client import Client
from penstock.kube.errors import Conflict, NotFound
from penstock.kube.kinds import DEPLOYMENT, LLM_BACKEND, POD
from penstock.reconcile.cache import Cache
from penstock.reconcile.observe import Observer
from penstock.reconcile.obstacles import Obstacles
from penstock.reconcile.rights import OptionalReads
from penstock.resources.deployment import REVISION_ANNOTATION
from penstock.resources.facts import UNKNOWN, ClusterFacts
from penstock.resources.objects import Key, Object
from penstock.status.admission import admission_due_seconds
from penstock.status.assess import Observation, assess, is_ready
from penstock.status.change import Change, Transition, change, transition
from penstock.status.conditions import condition_of
from penstock.status.trouble import Trouble

SETTLE_SECONDS = 1.0
"""How long after a write a sharper picture waits, for the events that are on their way to be in it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What came of a report.

    Attributes:
        backend: The backend as it is afterwards.
        transition: What is worth an Event; None when nothing is.
        overtaken: Whether the backend is another than the one the pass has worked on: its spec was edited meanwhile, or
            it is being deleted. The answer to the write has told of it, so its event will tell nothing new.
        look_again_seconds: When to look again though no event may tell; None when events will.
    """

    backend: Object
    transition: Transition | None = None
    overtaken: bool = False
    look_again_seconds: float | None = None


@dataclass(frozen=True)
class _Written:
    """The last write: what was sent, what the API server made of it, and when."""

    sent: Object
    stored: Object
    at: float


class Reporter:
    """Reports on all backends.

    Args:
        client: The API server.
        cache: What was observed; own writes are entered at once.
        settle_seconds: See `SETTLE_SECONDS`.
        view: What the slow loop knows of a backend.
        now: The wall clock, for conditions.
        clock: A clock that never goes back, in seconds.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache,
        *,
        settle_seconds: float = SETTLE_SECONDS,
        view: Callable[[Key], FleetView | None] = lambda _key: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._cache = cache
        self._settle_seconds = settle_seconds
        self._view = view
        self._now = now
        self._clock = clock
        reads = OptionalReads(now=clock)
        self._observer = Observer(client, reads, now=clock)
        self._obstacles = Obstacles(client, cache, reads, now=clock)
        self._written: dict[Key, _Written] = {}

    async def report(
        self,
        key: Key,
        raw: Object,
        backend: LLMBackend | None,
        *,
        trouble: Trouble | None = None,
        applied: bool = True,
        facts: ClusterFacts = UNKNOWN,
    ) -> Report:
        """Assess a backend and write its status if that is due.

        Args:
            key: The backend.
            raw: It, as the API server has it.
            backend: The spec as understood; None when it cannot be, and `trouble` says why.
            trouble: What was found while validating or applying.
            applied: Whether the children are as the spec wants them; while paused they may not be.
            facts: What is known of the cluster.

        Raises:
            KubeError: The API server cannot be reached, or asks for a pause.
        """
        owned = self._cache.of_backend(key, DEPLOYMENT)
        # A Deployment has its backend's name; another one of ours is on its way out.
        deployment = next((obj for obj in owned if obj["metadata"]["name"] == key.name), None)
        observation = Observation(
            generation=raw["metadata"]["generation"],
            previous=raw.get("status", {}),
            deployment=deployment,
            pods=self._cache.of_backend(key, POD),
            trouble=trouble,
            applied=applied,
            pod_monitors=facts.pod_monitors,
            revision=_annotation(deployment, REVISION_ANNOTATION),
            fleet=self._view(key),
        )
        now = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        status = assess(backend, observation, now=now)
        look_again = admission_due_seconds(observation.fleet, observation.previous, now=now)
        if backend is None or deployment is None or is_ready(status):
            self._observer.forget(key)
            self._obstacles.forget(key)
        else:
            findings = await self._observer.look(key, backend, observation.pods)
            observation = replace(
                observation, claims=findings.claims, events=findings.events, unreadable=findings.unreadable
            )
            status = assess(backend, observation, now=now)
            look_again = soonest(look_again, findings.look_again_seconds)
            look_again = soonest(look_again, await self._obstacles.look(key, deployment))
        report = await self._write(key, raw, status)
        return replace(report, look_again_seconds=soonest(report.look_again_seconds, look_again))

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a backend that is gone."""
        self._observer.forget(key)
        self._obstacles.forget(key)
        self._written.pop(key, None)

    async def _write(self, key: Key, raw: Object, status: Object) -> Report:
        previous = raw.get("status", {})
        written = self._written.get(key)
        if written is not None and (written.sent, written.stored) == (status, previous):
            return Report(backend=raw)
        difference = change(previous, status)
        if difference is Change.NONE:
            return Report(backend=raw)
        if difference is Change.MINOR and written is not None:
            settle = written.at + self._settle_seconds - self._clock()
            if settle > 0:
                return Report(backend=raw, look_again_seconds=settle)
        body = {
            "apiVersion": LLM_BACKEND.api_version,
            "kind": LLM_BACKEND.name,
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": raw["metadata"]["uid"]},
            "status": status,
        }
        try:
            answer = await self._client.patch_status(body)
        except (NotFound, Conflict):
            # Deleted meanwhile, or deleted and made anew: the event tells.
            return Report(backend=raw)
        self._cache.store(LLM_BACKEND, answer)
        self._written[key] = _Written(status, answer.get("status", {}), self._clock())
        _log_readiness(key, previous, status)
        return Report(backend=answer, transition=transition(previous, status), overtaken=_is_overtaken(raw, answer))


def soonest(first: float | None, second: float | None) -> float | None:
    """Return the earlier of two times that may not be set."""
    return min((value for value in (first, second) if value is not None), default=None)


def _is_overtaken(worked_on: Object, answer: Object) -> bool:
    return any(
        worked_on["metadata"].get(name) != answer["metadata"].get(name)
        for name in ("uid", "generation", "deletionTimestamp")
    )


def _log_readiness(key: Key, previous: Object, status: Object) -> None:
    before, after = (condition_of(one, ConditionType.READY) for one in (previous, status))
    if (before.get("status"), before.get("reason")) != (after["status"], after["reason"]):
        _log.info("%s: Ready=%s %s: %s", key, after["status"], after["reason"], after["message"])


def _annotation(obj: Object | None, name: str) -> str | None:
    annotations: Mapping[str, str] = obj["metadata"].get("annotations", {}) if obj is not None else {}
    return annotations.get(name)
