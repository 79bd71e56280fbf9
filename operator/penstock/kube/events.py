"""Events: what happened to a backend, for people who look at it with `kubectl describe`.

Events are a courtesy. They are posted by one task behind a short queue, at a bounded rate, and what cannot be posted is
counted and forgotten; no reconcile waits for one or fails with one. The same thing said again about the same object
raises the count of the Event that said it first, as long as that Event is remembered here and still exists there.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.kube.client import Client
from penstock.kube.errors import Conflict, KubeError, NotFound
from penstock.kube.kinds import EVENT
from penstock.resources.objects import Key, Object, key_of

COMPONENT = "penstock-operator"
INTERVAL_SECONDS = 0.04
"""Between two Events: 25 per second, one write in twenty of what the operator may do."""

QUEUE = 1_000
REMEMBERED = 5_000
LONGEST_MESSAGE = 1_024
"""Characters; the API server refuses more."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Saying:
    """What is said about which object; the same saying twice is one Event."""

    api_version: str
    kind: str
    key: Key
    uid: str
    type: str
    reason: str
    message: str


@dataclass
class _Posted:
    key: Key
    uid: str
    count: int


class Recorder:
    """Posts Events.

    Args:
        client: The API server.
        instance: Name of this process; part of each Event's name, so that two processes share none.
        observe: Told `ok`, `dropped` or the error's name of every Event.
        now: The wall clock.
    """

    def __init__(
        self,
        client: Client,
        *,
        instance: str,
        observe: Callable[[str], None] = lambda _result: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._instance = instance
        self._observe = observe
        self._now = now
        self._queue: asyncio.Queue[_Saying] = asyncio.Queue(maxsize=QUEUE)
        self._posted: OrderedDict[_Saying, _Posted] = OrderedDict()

    def record(self, regarding: Object, *, reason: str, message: str, warning: bool) -> None:
        """Have an Event posted soon, if there is room."""
        saying = _Saying(
            api_version=regarding["apiVersion"],
            kind=regarding["kind"],
            key=key_of(regarding),
            uid=regarding["metadata"]["uid"],
            type="Warning" if warning else "Normal",
            reason=reason,
            message=message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 1] + "…",
        )
        try:
            self._queue.put_nowait(saying)
        except asyncio.QueueFull:
            self._observe("dropped")

    async def run(self) -> None:
        """Post until cancelled."""
        while True:
            saying = await self._queue.get()
            try:
                await self._post(saying)
            except KubeError as error:
                _log.debug("an Event could not be posted: %s", error)
                self._observe(type(error).__name__)
            else:
                self._observe("ok")
            await asyncio.sleep(INTERVAL_SECONDS)

    async def _post(self, saying: _Saying) -> None:
        posted = self._posted.get(saying)
        if posted is not None:
            patch = {"count": posted.count + 1, "lastTimestamp": self._stamp()}
            try:
                await self._client.patch(EVENT, posted.key, patch, uid=posted.uid)
            except (NotFound, Conflict):
                # Events live for an hour; the next one begins to count anew.
                del self._posted[saying]
            else:
                posted.count += 1
                return
        created = await self._client.create(self._event(saying))
        self._posted[saying] = _Posted(key_of(created), created["metadata"]["uid"], 1)
        while len(self._posted) > REMEMBERED:
            self._posted.popitem(last=False)

    def _event(self, saying: _Saying) -> Object:
        stamp = self._stamp()
        parts = (self._instance, stamp, saying.uid, saying.type, saying.reason, saying.message)
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.name,
            "metadata": {"name": f"{saying.key.name}.{digest}", "namespace": saying.key.namespace},
            "involvedObject": {
                "apiVersion": saying.api_version,
                "kind": saying.kind,
                "name": saying.key.name,
                "namespace": saying.key.namespace,
                "uid": saying.uid,
            },
            "type": saying.type,
            "reason": saying.reason,
            "message": saying.message,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._instance,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }

    def _stamp(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
