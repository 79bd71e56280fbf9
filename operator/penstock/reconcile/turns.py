"""Whose turn it is to take a newer template, decided from what the cache holds of the whole fleet.

The rules are those of `rollout.pacing`. Here each backend's phase is read off its Deployment, its history and its pods:
its own at every pass, and before a permission is given, that of all others that were last seen at work. Nothing of it
is stored; another process finds the same in the cluster.
"""

from __future__ import annotations

from penstock.kube.kinds import CONTROLLER_REVISION, DEPLOYMENT, LLM_BACKEND, POD
from penstock.reconcile.cache import Cache
from penstock.resources.deployment import REVISION_ANNOTATION
from penstock.resources.objects import Key, Object, is_controlled_by
from penstock.rollout import revisions
from penstock.rollout.pacing import MAX_CONCURRENT_ROLLOUTS, Pacer, Wait
from penstock.rollout.phase import Phase, phase_of
from penstock.status import refusals
from penstock.status.pods import trouble_of


class Turns:
    """The turns of all backends.

    Args:
        cache: What is known of the fleet.
        maximum: The most rollouts at a time, at least 1.
    """

    def __init__(self, cache: Cache, *, maximum: int = MAX_CONCURRENT_ROLLOUTS) -> None:
        self._cache = cache
        self._pacer: Pacer[Key] = Pacer(maximum=maximum)
        self._surveyed = False

    def observe(self, key: Key) -> None:
        """Take note of what a backend is doing now."""
        backend = self._cache.get(LLM_BACKEND, key)
        if backend is None:
            self._pacer.forget(key)
        else:
            self._pacer.observe(key, self._phase(key, str(backend["metadata"].get("uid"))))

    def ask(self, key: Key) -> Wait | None:
        """Return None when a backend may take a newer template now, and why not otherwise; `done` must follow."""
        others = self._pacer.busy
        if not self._surveyed:
            # A process that has just begun has passed over some backends only.
            self._surveyed = True
            others = frozenset(self._cache.all(LLM_BACKEND))
        for other in others | {key}:
            self.observe(other)
        return self._pacer.ask(key)

    def content(self, key: Key) -> None:
        """Take note that a backend wants no newer template."""
        self._pacer.content(key)

    def done(self, key: Key) -> None:
        """End a pass: from here on the Deployment tells how far the backend is."""
        self.observe(key)
        self._pacer.give_back(key)

    def forget(self, key: Key) -> None:
        """Drop what is known of a backend that is gone."""
        self._pacer.forget(key)

    def _phase(self, key: Key, uid: str) -> Phase:
        live = deployment_of(self._cache, key, uid)
        if live is None or phase_of(live, upgrade=True, trouble=False) is Phase.SETTLED:
            return Phase.SETTLED
        objects = self._cache.of_backend(key, CONTROLLER_REVISION)
        stored, _ignored = revisions.read(objects, backend=key.name, owner_uid=uid)
        pods = self._cache.of_backend(key, POD)
        return phase_of(
            live,
            upgrade=revisions.is_upgrade(annotation(live, REVISION_ANNOTATION), stored),
            trouble=(refusals.trouble_of(live) or trouble_of(pods)) is not None,
        )


def deployment_of(cache: Cache, key: Key, uid: str) -> Object | None:
    """Return the backend's own Deployment as it was heard of last.

    Args:
        cache: Where to look.
        key: The backend, whose Deployment has its name.
        uid: The backend's: a Deployment of another is not returned.
    """
    found = cache.get(DEPLOYMENT, key)
    return found if found is not None and is_controlled_by(found, uid) else None


def annotation(obj: Object | None, name: str) -> str:
    """Return an annotation of an object; empty when there is none."""
    return str((obj or {}).get("metadata", {}).get("annotations", {}).get(name, ""))
