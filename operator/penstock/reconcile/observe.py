"""Reads what no watch tells and only a backend in trouble needs: claims it names, Events of pods that are stuck.

Both kinds are large and other people's, so they are not watched. A backend that is ready costs no read at all. One that
is not is looked at when something about it changes, and then after waits that grow up to `LONGEST_WAIT_SECONDS`, for as
long as there is something to ask about. A pod gets a moment to come up before it counts as stuck.

What a cluster does not let the operator read is done without: the status then names the missing right.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.api.backend import LLMBackend
from penstock.kube.client import Client
from penstock.kube.errors import NotFound
from penstock.kube.kinds import EVENT, PERSISTENT_VOLUME_CLAIM, POD
from penstock.reconcile.rights import Denied, OptionalReads
from penstock.resources.objects import Key, Object
from penstock.status.pods import is_stuck, newest
from penstock.status.volumes import claim_names

STUCK_SECONDS = 3.0
"""A pod whose images are there needs about two to come up; kubelet's first Event of trouble comes within one."""

LEAST_WAIT_SECONDS = 1.0
"""Between two looks at one backend, also if there is something new to ask about."""

FIRST_WAIT_SECONDS = 3.0
LONGEST_WAIT_SECONDS = 15.0
"""Between two looks with the same questions: the wait doubles from the first to the longest."""

PODS_AT_ONCE = 2
"""Of how many stuck pods of a backend Events are read: the others wait for the same."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What was read about one backend.

    Attributes:
        claims: The claims that it names; None where there is none.
        events: Warnings about its stuck pods.
        unreadable: The rights that are missing, in words of RBAC: `list events`.
        look_again_seconds: When there may be more to read; None when nothing is asked about.
    """

    claims: Mapping[str, Object | None] = field(default_factory=dict)
    events: Sequence[Object] = ()
    unreadable: Sequence[str] = ()
    look_again_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class _Question:
    """What is asked about one backend."""

    claims: Sequence[str] = ()
    pods: Sequence[str] = ()
    """Uids of stuck pods."""


@dataclass(kw_only=True)
class _Record:
    """What is remembered of one backend."""

    stuck_since: dict[str, float] = field(default_factory=dict)
    question: _Question = _Question()
    findings: Findings = Findings()
    asked_at: float = float("-inf")
    times: int = 0

    def wait_seconds(self, question: _Question) -> float:
        """Return how long the last findings serve for a question."""
        if question != self.question:
            return LEAST_WAIT_SECONDS
        return min(FIRST_WAIT_SECONDS * 2.0 ** min(self.times - 1, 10), LONGEST_WAIT_SECONDS)


class Observer:
    """Reads on demand, for all backends.

    Args:
        client: The API server.
        reads: Remembers what may not be read.
        now: A clock that never goes back, in seconds.
    """

    def __init__(self, client: Client, reads: OptionalReads, *, now: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._reads = reads
        self._now = now
        self._records: dict[Key, _Record] = {}

    async def look(self, key: Key, backend: LLMBackend, pods: Iterable[Object]) -> Findings:
        """Return what there is to know about a backend that is not ready, read now or a moment ago.

        Raises:
            KubeError: The API server cannot be reached, or asks for a pause.
        """
        now = self._now()
        record = self._records.setdefault(key, _Record())
        stuck = [pod["metadata"]["uid"] for pod in newest(pods) if is_stuck(pod)]
        record.stuck_since = {uid: record.stuck_since.get(uid, now) for uid in stuck}
        ripe = [uid for uid, since in record.stuck_since.items() if now - since >= STUCK_SECONDS]
        ripening = [since + STUCK_SECONDS - now for uid, since in record.stuck_since.items() if uid not in ripe]
        question = _Question(claims=claim_names(backend), pods=tuple(sorted(ripe)[:PODS_AT_ONCE]))
        if question == _Question():
            record.question, record.findings = question, Findings()
            return replace(record.findings, look_again_seconds=min(ripening, default=None))
        if record.asked_at + record.wait_seconds(question) <= now:
            record.findings = await self._ask(key.namespace, question)
            record.times = record.times + 1 if question == record.question else 1
            record.question, record.asked_at = question, now
        due = record.asked_at + record.wait_seconds(question) - now
        return replace(record.findings, look_again_seconds=min([due, *ripening]))

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a backend: it is ready, or gone."""
        self._records.pop(key, None)

    async def _ask(self, namespace: str, question: _Question) -> Findings:
        unreadable: dict[str, None] = {}
        claims: dict[str, Object | None] = {}
        events: list[Object] = []
        try:
            for name in question.claims:
                claims[name] = await self._claim(Key(namespace, name))
        except Denied as denied:
            unreadable[denied.right] = None
        try:
            for uid in question.pods:
                events += await self._warnings(namespace, uid)
        except Denied as denied:
            unreadable[denied.right] = None
        return Findings(claims=claims, events=events, unreadable=tuple(unreadable))

    async def _claim(self, key: Key) -> Object | None:
        async def get() -> Object | None:
            try:
                return await self._client.get(PERSISTENT_VOLUME_CLAIM, key)
            except NotFound:
                return None

        return await self._reads.ask("get persistentvolumeclaims", key.namespace, get)

    async def _warnings(self, namespace: str, pod_uid: str) -> list[Object]:
        async def list_events() -> list[Object]:
            fields = {"involvedObject.kind": POD.name, "involvedObject.uid": pod_uid, "type": "Warning"}
            return await self._client.list(EVENT, namespace=namespace, fields=fields)

        return await self._reads.ask("list events", namespace, list_events)
