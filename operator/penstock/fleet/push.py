"""Sends limits to the limiters of a backend's replicas.

Theory of operation. Each push is signed for one process of one pod, see `penstock.api.push`. What that needs and the
cluster does not tell is learned from the limiter's own answers, and the push is repeated once:

- **The boot id.** A limiter that was meant by another name answers with its own.
- **The epoch.** It is how often the Lease has changed hands, and a Lease that was deleted begins anew. A limiter that
  has seen a later version than ours says so; then our epoch becomes one above that, for that replica alone. This is
  safe because only who leads sends: whoever sent the later version does not lead any more.

Whether this operator leads is asked when the connection is there and the next step is the socket. An answer that says
too much is not believed beyond the replica that gave it, so no replica can keep limits from others.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from pydantic import ValidationError
from yarl import URL

from penstock.api.push import (
    LIMITS_PATH,
    PUSH_LIMIT_BYTES,
    STATUSES,
    PushAnswer,
    Pushed,
    PushedLimits,
    PushResult,
    Version,
)
from penstock.api.replica import ADMIN_PORT
from penstock.fleet.rooms import Rooms
from penstock.fleet.signing import SigningKey

TIMEOUT_SECONDS = 2.0
ANSWER_LIMIT_BYTES = 4096
REMEMBERED_REPLICAS = 20_000
HIGHEST_EPOCH = 2**62 - 1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The limiter of one replica.

    Attributes:
        backend_uid: The LLMBackend's metadata.uid.
        pod_uid: The pod's.
        address: The pod's IP address.
        boot_id: The limiter's own, if it is known.
        port: Its admin port.
    """

    backend_uid: str
    pod_uid: str
    address: str
    boot_id: str | None = None
    port: int = ADMIN_PORT


@dataclass(slots=True)
class _Known:
    """What a replica has told."""

    boot_id: str = ""
    least_epoch: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Pusher:
    """See the module's docstring.

    Args:
        key: Signs.
        session: For requests to pods; it belongs to the caller.
        may_push: Whether this operator leads, right now.
        epoch: How often the Lease has changed hands.

    Attributes:
        results: What became of pushes.
        raised: How often a limiter had seen a later version than this operator could have given.
    """

    def __init__(
        self,
        key: SigningKey,
        session: aiohttp.ClientSession,
        *,
        may_push: Callable[[], bool],
        epoch: Callable[[], int],
    ) -> None:
        self.results: Counter[PushResult] = Counter()
        self.raised = 0
        self._key = key
        self._session = session
        self._may_push = may_push
        self._find_epoch = epoch
        self._epoch = 0
        self._counter = itertools.count(1)
        self._known: dict[str, _Known] = {}
        self._rooms = Rooms(timeout_seconds=TIMEOUT_SECONDS)

    async def push(self, target: Target, limits: PushedLimits, *, ttl_seconds: float) -> PushResult:
        """Push limits to one replica; what goes wrong is returned, never raised.

        Pushes to one replica go one after the other, and many at the same time in all.
        """
        known = self._of(target)
        async with known.turn:
            result = await self._push(target, known, limits, ttl_seconds)
        self.results[result] += 1
        return result

    def forget(self, pod_uid: str) -> None:
        """Let go of what is known of a replica that is gone."""
        self._known.pop(pod_uid, None)
        self._rooms.forget(pod_uid)

    def _of(self, target: Target) -> _Known:
        known = self._known.get(target.pod_uid)
        if known is None:
            while len(self._known) >= REMEMBERED_REPLICAS:
                del self._known[next(iter(self._known))]
            known = self._known[target.pod_uid] = _Known()
        if target.boot_id:
            known.boot_id = target.boot_id
        return known

    async def _push(self, target: Target, known: _Known, limits: PushedLimits, ttl_seconds: float) -> PushResult:
        is_repeated = False
        while True:
            if not self._may_push():
                return PushResult.NOT_LEADING
            version = self._next_version(known)
            pushed = Pushed(
                backend_uid=target.backend_uid,
                pod_uid=target.pod_uid,
                boot_id=known.boot_id,
                version=version,
                ttl_seconds=ttl_seconds,
                limits=limits,
            )
            answer = await self._send(target, pushed)
            if isinstance(answer, PushResult):
                return answer
            learned = self._learn(target, known, answer, version=version)
            if is_repeated or not learned:
                return answer.result
            is_repeated = True

    def _next_version(self, known: _Known) -> Version:
        self._epoch = max(self._epoch, self._find_epoch())  # a Lease that was deleted while we hold it begins anew
        return Version(max(self._epoch, known.least_epoch), next(self._counter))

    def _learn(self, target: Target, known: _Known, answer: PushAnswer, *, version: Version) -> bool:
        """Take note of a refusal; return whether the next push can do better."""
        learned = False
        if answer.result is PushResult.WRONG_BOOT and answer.boot_id != known.boot_id:
            known.boot_id = answer.boot_id
            learned = True
        if answer.result not in (PushResult.WRONG_BOOT, PushResult.OLD_VERSION):
            return learned
        told = answer.version
        if told is not None and told >= version and told.epoch < HIGHEST_EPOCH and self._may_push():
            known.least_epoch = told.epoch + 1
            self.raised += 1
            learned = True
            _log.warning(
                "the limiter at %s has seen version %s, ours was %s: it gets epoch %d from now on. The Lease was "
                "deleted, or another operator pushed meanwhile",
                target.address,
                tuple(told),
                tuple(version),
                known.least_epoch,
            )
        return learned

    async def _send(self, target: Target, pushed: Pushed) -> PushAnswer | PushResult:
        """Send a push; return the answer, or why there is none."""
        body = self._body(pushed)
        try:
            status, answer = await self._rooms.ask(target.pod_uid, lambda: self._put(target, body))
        except TimeoutError:
            return PushResult.LATE
        except (aiohttp.ClientError, OSError, ValidationError) as error:
            if body.withheld:
                return PushResult.NOT_LEADING
            _log.debug("push to %s failed: %s", target.address, error)
            return PushResult.UNREACHABLE
        return answer if STATUSES.get(answer.result) == status else PushResult.UNREACHABLE

    async def _put(self, target: Target, body: _Fenced) -> tuple[int, PushAnswer]:
        url = URL.build(scheme="http", host=target.address, port=target.port, path=LIMITS_PATH)
        async with self._session.put(url, data=body, allow_redirects=False) as response:
            content = b""
            while len(content) < ANSWER_LIMIT_BYTES and (chunk := await response.content.read(ANSWER_LIMIT_BYTES)):
                content += chunk
            return response.status, PushAnswer.model_validate_json(content, strict=True, by_name=False)

    def _body(self, pushed: Pushed) -> _Fenced:
        body = self._key.seal(pushed).render()
        if len(body) > PUSH_LIMIT_BYTES:  # a policy that long comes with the ConfigMap
            limits = pushed.limits.model_copy(update={"policy": None})
            body = self._key.seal(pushed.model_copy(update={"limits": limits})).render()
        return _Fenced(body, may_push=self._may_push)


class _Fenced(aiohttp.BytesPayload):
    """A body that asks at the last moment: the connection is there, the next step is the socket.

    Attributes:
        withheld: Whether it was not sent because this operator may not push any more.
    """

    def __init__(self, content: bytes, *, may_push: Callable[[], bool]) -> None:
        super().__init__(content, content_type="application/json")
        self.withheld = False
        self._may_push = may_push

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        if not self._may_push():
            self.withheld = True
            raise aiohttp.ClientError("this operator may not push any more")
        await super().write_with_length(writer, content_length)
