"""Brings the children of one backend to what is desired: apply, and delete what is no longer wanted.

An apply is left out when it could change nothing: the desired object is the one applied last, and the object in the
cluster still is what the API server answered then. Both are remembered as digests, in memory only; a new process
applies everything once, which the API server recognises as no change. A child that others change as fast as it is put
right is left to them for a while (`reconcile.fights`).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.api.conditions import Reason
from penstock.kube.client import Client
from penstock.kube.errors import Conflict, Forbidden, Invalid, NotFound
from penstock.kube.kinds import CHILD_KINDS, Kind, kind_of
from penstock.reconcile.cache import Cache
from penstock.reconcile.fights import Fights
from penstock.reconcile.hindrance import Blocked, Gone, check_free, forbidden
from penstock.reconcile.repair import give_up, repair, replace
from penstock.resources.digest import digest
from penstock.resources.objects import Key, Object, is_controlled_by, is_terminating, key_of
from penstock.status.trouble import Trouble

_log = logging.getLogger(__name__)

NO_VERSION = "1"
"""A resourceVersion that no object has: the first write of a cluster is version 2. An apply that names it makes the
object if there is none, and is a conflict if there is one, so it can never change what it did not make."""

Answer = TypeVar("Answer")
_Child = tuple[Kind, Key]


@dataclass
class _Memory:
    """What is remembered of one backend.

    Attributes:
        applied: By child, the digests of what was applied last, and of what the API server answered then.
        reached: How many of the desired children were in place when the last pass ended.
        fights: How often each child had to be put right.
    """

    fights: Fights[_Child]
    applied: dict[_Child, tuple[str, str]] = field(default_factory=dict)
    reached: int = 0


class Children:
    """The children of all backends.

    Args:
        client: The API server.
        cache: What is known of the children; own writes are entered at once.
        clock: A clock that never goes back, in seconds.
    """

    def __init__(self, client: Client, cache: Cache, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._cache = cache
        self._clock = clock
        self._memories: dict[Key, _Memory] = {}

    async def converge(
        self,
        owner_uid: str,
        backend: Key,
        desired: Sequence[Object],
        *,
        kept: Collection[_Child] = (),
    ) -> float | None:
        """Apply every desired child in order, then delete the others.

        Args:
            owner_uid: The backend's.
            backend: Whose children they are.
            desired: The children as they are applied.
            kept: Further children that stay as they are.

        Returns:
            Seconds after which a child has to be looked at again that was left as others want it; None when there is
            no such child.

        Raises:
            Blocked: A child cannot be applied; those after it are left for the next pass.
            Gone: A child is being deleted, or was deleted just now.
            KubeError: The API server cannot be reached, or asks for a pause.
        """
        memory = self._memories.setdefault(backend, _Memory(Fights(self._clock)))
        memory.reached = 0
        waits: list[float] = []
        for obj in desired:
            wait = await self._apply(owner_uid, backend, obj, memory)
            waits += [wait] if wait > 0 else []
            memory.reached += 1
        wanted = {(kind_of(obj), key_of(obj)) for obj in desired}.union(kept)
        await self._prune(owner_uid, backend, wanted, memory)
        return min(waits, default=None)

    def reached(self, backend: Key) -> int:
        """Return how many of the desired children were in place when the last `converge` ended."""
        memory = self._memories.get(backend)
        return memory.reached if memory is not None else 0

    def forget(self, backend: Key) -> None:
        """Drop what is remembered of a backend's children."""
        self._memories.pop(backend, None)

    async def _apply(self, owner_uid: str, backend: Key, obj: Object, memory: _Memory) -> float:
        """Apply one child if that can change anything, and return how long it is left to others instead; 0 for not."""
        kind, key = kind_of(obj), key_of(obj)
        child, wanted = (kind, key), digest(obj)
        applied, answered = memory.applied.get(child, (None, None))
        held = self._cache.get(kind, key)
        if held is not None:
            check_free(owner_uid, backend, kind, held)
            if (applied, answered) == (wanted, _fingerprint(held, obj)):
                return 0.0
        if applied == wanted and (wait := memory.fights.wait_seconds(child)) > 0:
            return wait
        started, why = time.monotonic(), _why(applied, wanted, missing=held is None)
        if applied is not None:
            # What is cut short half-way is done again, even if by then the child looks as it should.
            memory.applied[child] = (applied, "")
        if applied == wanted and memory.fights.put_right(child):
            told = "%s: others change %s %s as fast as it is put right; repairs slow down"
            _log.warning(told, backend, kind, key.name)
        try:
            answer = await self._write(owner_uid, backend, obj, held)
        except Blocked:
            # No fight: nothing is written, and it has to be said why at every pass.
            memory.applied.pop(child, None)
            raise
        self._cache.store(kind, answer)
        if is_terminating(answer):
            # Its deletion began before the write, and the event of that tells nothing new.
            check_free(owner_uid, backend, kind, answer)
        memory.applied[child] = (wanted, _fingerprint(answer, obj))
        if held is None or answer["metadata"]["resourceVersion"] != held["metadata"]["resourceVersion"]:
            _decided(backend, f"applied {kind} {key.name}", why, started)
        return 0.0

    async def _write(self, owner_uid: str, backend: Key, obj: Object, held: Object | None) -> Object:
        """Make a child or put it right, and return it as it is then."""
        kind, key = kind_of(obj), key_of(obj)
        if held is None:
            made = await self._make(obj)
            if made is not None:
                return made
            held = await self._live(kind, key)
            if held is None:
                raise Gone(f"{kind} {key} was there and is gone again")
            check_free(owner_uid, backend, kind, held)
        return await self._put_right(kind, key, obj, held)

    async def _make(self, obj: Object) -> Object | None:
        """Apply a child that must not exist, and return it; None when it does exist.

        Whoever has taken the name keeps it: unlike a look beforehand this leaves no moment in between.
        """
        new = {**obj, "metadata": {**obj["metadata"], "resourceVersion": NO_VERSION}}

        async def write() -> Object | None:
            with contextlib.suppress(Conflict):
                return await self._client.apply(new)
            return None

        return await self._send(kind_of(obj), key_of(obj), write())

    async def _put_right(self, kind: Kind, key: Key, desired: Object, held: Object) -> Object:
        """Apply a child, take out what an apply leaves, and return the child as it is then."""
        uid = held["metadata"]["uid"]
        # With the uid an apply can only ever change that very object, never make a new one in its place.
        pinned = {**desired, "metadata": {**desired["metadata"], "uid": uid}}
        try:
            answer = await self._send(kind, key, self._client.apply(pinned))
        except Blocked as blocked:
            if held.get("immutable") and not blocked.retry:
                await self._client.delete(kind, key, uid=uid)
                raise Gone(f"{kind} {key} was made immutable and is made anew") from blocked
            patch = None if blocked.retry else replace(kind, desired, held)
            if patch is None:
                raise
            await self._send(kind, key, self._client.patch(kind, key, patch, uid=uid))
            answer = await self._send(kind, key, self._client.apply(pinned))
        patch = repair(kind, desired, answer)
        if patch is not None:
            # On that very version: what somebody writes after the apply would look in the answer as if it were ours.
            patch["metadata"] = {"resourceVersion": answer["metadata"]["resourceVersion"]}
            answer = await self._send(kind, key, self._client.patch(kind, key, patch, uid=uid))
        patch = give_up(answer)
        return answer if patch is None else await self._send(kind, key, self._client.patch(kind, key, patch, uid=uid))

    async def _live(self, kind: Kind, key: Key) -> Object | None:
        try:
            return await self._client.get(kind, key)
        except NotFound:
            return None

    async def _send(self, kind: Kind, key: Key, write: Awaitable[Answer]) -> Answer:
        try:
            return await write
        except Conflict as error:
            self._cache.drop(kind, key)
            raise Gone(str(error)) from error
        except NotFound as error:
            raise Gone(str(error)) from error
        except Invalid as error:
            message = f"the API server refuses {kind} {key.name}: {error.server_message}"
            raise Blocked(
                Trouble(reason=Reason.CHILDREN_REFUSED, message=message, stalled=True), retry=False
            ) from error
        except Forbidden as error:
            raise Blocked(forbidden(kind, key, error), retry=True) from error

    async def _prune(self, owner_uid: str, backend: Key, wanted: Collection[_Child], memory: _Memory) -> None:
        for kind in CHILD_KINDS:
            for child in self._cache.of_backend(backend, kind):
                key = key_of(child)
                if (kind, key) in wanted or is_terminating(child) or not is_controlled_by(child, owner_uid):
                    continue
                memory.applied.pop((kind, key), None)
                started = time.monotonic()
                try:
                    await self._client.delete(kind, key, uid=child["metadata"]["uid"])
                except Conflict:
                    # Another object has taken the name since, and it is not ours to delete.
                    self._cache.drop(kind, key)
                else:
                    _decided(backend, f"deleted {kind} {key.name}", "it is no longer wanted", started)


def _why(applied: str | None, wanted: str, *, missing: bool) -> str:
    if missing:
        return "it was missing"
    if applied is None:
        return "it was not as this release wants it"
    return "something else is wanted now" if applied != wanted else "somebody had changed it"


def _decided(backend: Key, decision: str, reason: str, started: float) -> None:
    """Log a decision: in one line for people, and in fields of its own for machines."""
    took = round(time.monotonic() - started, 3)
    fields = {"backend": str(backend), "reason": reason, "took": took}
    _log.info("%s: %s, %s", backend, decision, reason, extra=fields)


def _fingerprint(obj: Object, desired: Object) -> str:
    """Return a digest of all that an apply could change back: everything but status, bookkeeping and foreign marks.

    Labels and annotations that others add stay with whoever added them; a Deployment's controller adds one for each
    revision, which is no reason to write.
    """
    metadata = {name: obj["metadata"].get(name) for name in ("uid", "ownerReferences")}
    for marks in ("labels", "annotations"):
        ours = desired["metadata"].get(marks, {})
        metadata[marks] = {name: value for name, value in obj["metadata"].get(marks, {}).items() if name in ours}
    return digest({**{name: value for name, value in obj.items() if name != "status"}, "metadata": metadata})
