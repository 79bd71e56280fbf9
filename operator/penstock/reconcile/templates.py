"""Which pod template each backend runs: the one that is kept for its spec, or a fresh one when that is due.

What is due is decided by `rollout`, from what the cache holds: the Deployment names the revision that runs, the
ControllerRevisions hold the templates. A ControllerRevision is written before the Deployment that runs its template, so
there is none without a history, whatever ends a pass early.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.api.backend import LLMBackend
from penstock.api.rollout import UpgradePolicy
from penstock.kube.client import Client
from penstock.kube.kinds import CONTROLLER_REVISION, Kind
from penstock.reconcile.cache import Cache
from penstock.reconcile.recovery import recover
from penstock.reconcile.turns import Turns, annotation, deployment_of
from penstock.resources import deployment, revision
from penstock.resources.digest import digest
from penstock.resources.facts import ClusterFacts
from penstock.resources.objects import Key, Object, key_of
from penstock.resources.settings import BuildSettings
from penstock.rollout import revisions
from penstock.rollout.pacing import Wait
from penstock.rollout.podspec import pod_spec_hash
from penstock.rollout.revisions import Ignored, Revision

FIXED_KEY = bytes(32)
"""Stands for the drain key where templates are compared: another key is no reason to replace pods."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one pass applies.

    Attributes:
        revision: The template to run, with its name and number.
        kept: The ControllerRevisions that stay, this one included.
        wait: Why a newer template is not applied yet; None when there is none.
    """

    revision: Revision
    kept: frozenset[tuple[Kind, Key]]
    wait: Wait | None

    def with_history(self, backend: LLMBackend, children: Sequence[Object]) -> tuple[Object, ...]:
        """Return the children with the ControllerRevision among them, before the Deployment, which is last."""
        chosen = self.revision
        history = revision.build(
            backend,
            name=chosen.name,
            number=chosen.number,
            pod_spec=chosen.pod_spec,
            renderer=chosen.renderer,
            template=chosen.template,
        )
        *before, workload = (revision.mark(child, made_from=chosen.made_from) for child in children)
        return (*before, history, workload)


class Templates:
    """The pod templates of all backends.

    Args:
        client: Reads what the cache does not hold, and deletes what stands in a revision's place.
        cache: What is known of backends, Deployments, ControllerRevisions and pods.
        turns: Whose turn it is under `upgradePolicy: Rolling`.
    """

    def __init__(self, client: Client, cache: Cache, turns: Turns) -> None:
        self._client = client
        self._cache = cache
        self._turns = turns
        self._told: dict[Key, str] = {}

    async def plan(
        self, key: Key, raw: Object, backend: LLMBackend, *, settings: BuildSettings, facts: ClusterFacts
    ) -> Plan:
        """Return what to apply; `done` must follow when that is done, or has failed.

        Args:
            key: The backend.
            raw: It, as the API server has it, with its status.
            backend: The same, understood.
            settings: What the builders need besides.
            facts: What is known of the cluster.

        Raises:
            KubeError: What has to be read cannot be.
        """
        pod_spec = pod_spec_hash(backend)

        def fresh() -> Revision:
            return render(backend, settings, facts, pod_spec=pod_spec)

        live = deployment_of(self._cache, key, backend.metadata.uid)
        running = annotation(live, deployment.REVISION_ANNOTATION)
        objects = self._cache.of_backend(key, CONTROLLER_REVISION)
        stored, ignored = revisions.read(objects, backend=key.name, owner_uid=backend.metadata.uid)
        if live is not None and _is_lost(running, stored):
            lost = await recover(self._client, raw, live, fresh=fresh())
            stored += [lost] if lost is not None else []
        rolling = backend.spec.upgrade_policy is UpgradePolicy.ROLLING
        choice = revisions.choose(pod_spec, stored, running=running, rolling=rolling, fresh=fresh)
        wait = self._wait(key, wanted=choice.upgrade is not None)
        chosen = choice.upgrade if choice.upgrade is not None and wait is None else choice.revision
        chosen = revisions.use(chosen, stored)
        await self._clear(objects, ignored, chosen.name)
        names = revisions.kept(stored, current=chosen.name, running={running, _last_good(raw)})
        kept = frozenset((CONTROLLER_REVISION, Key(key.namespace, name)) for name in names)
        return Plan(revision=chosen, kept=kept, wait=wait)

    def done(self, key: Key) -> None:
        """End what `plan` has begun."""
        self._turns.done(key)

    def forget(self, key: Key) -> None:
        """Drop what is known of a backend that is gone."""
        self._turns.forget(key)
        self._told.pop(key, None)

    def is_current(self, key: Key, backend: LLMBackend) -> bool:
        """Tell whether the Deployment is for this spec already, as far as pods and their number are concerned."""
        live = deployment_of(self._cache, key, backend.metadata.uid)
        return (
            live is not None
            and annotation(live, revision.MADE_FROM_ANNOTATION).partition(".")[0] == pod_spec_hash(backend)
            and live["spec"].get("replicas") == backend.spec.wanted_replicas
        )

    def _wait(self, key: Key, *, wanted: bool) -> Wait | None:
        if not wanted:
            self._turns.content(key)
            self._told.pop(key, None)
            return None
        wait = self._turns.ask(key)
        if wait is None:
            self._told.pop(key, None)
            _log.info("%s: takes the template of this release", key)
        elif self._told.get(key) != wait.reason:
            self._told[key] = wait.reason
            _log.info("%s: waits to take the template of this release: %s", key, wait.reason)
        return wait

    async def _clear(self, objects: list[Object], ignored: list[Ignored], name: str) -> None:
        """Tell of revisions that cannot be used, and delete the one whose name is needed: its data cannot be changed.

        The others that are the backend's own are not kept, so they are deleted with what is no longer wanted.
        """
        for one in ignored:
            _log.log(logging.WARNING if one.ours else logging.DEBUG, "ControllerRevision %s: %s", one.name, one.reason)
            if one.ours and one.name == name:
                obj = next(obj for obj in objects if obj["metadata"]["name"] == name)
                await self._client.delete(CONTROLLER_REVISION, key_of(obj), uid=obj["metadata"]["uid"])
                self._cache.drop(CONTROLLER_REVISION, key_of(obj))


def render(backend: LLMBackend, settings: BuildSettings, facts: ClusterFacts, *, pod_spec: str) -> Revision:
    """Return the template as this release renders it now."""
    plain = deployment.template(backend, replace(settings, drain_key=FIXED_KEY), facts)
    return revisions.make(
        backend.metadata.name,
        pod_spec=pod_spec,
        renderer=digest(plain, revisions.RENDERER_DIGITS),
        template=deployment.template(backend, settings, facts),
    )


def _is_lost(running: str, stored: list[Revision]) -> bool:
    """Tell whether the template that runs is not stored, or none ever was."""
    return running not in {one.name for one in stored} if running else not stored


def _last_good(raw: Object) -> str:
    return str(raw.get("status", {}).get("rollout", {}).get("lastGoodRevision", ""))
