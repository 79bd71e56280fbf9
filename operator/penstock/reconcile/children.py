"""Brings the children of one backend to what is desired: apply, and delete what is no longer wanted.

An apply is left out when it could change nothing: the desired object is the one applied last, and the object in the
cluster still is what the API server answered then. Both are remembered as digests, in memory only; a new process
applies everything once, which the API server recognises as no change.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Awaitable, Collection, Sequence
from typing import TypeVar

from penstock.api.conditions import Reason
from penstock.kube.client import Client
from penstock.kube.errors import Conflict, Forbidden, Invalid, NotFound
from penstock.kube.kinds import CHILD_KINDS, LLM_BACKEND, Kind, kind_of
from penstock.reconcile.cache import Cache
from penstock.reconcile.repair import give_up, repair, replace
from penstock.resources.digest import digest
from penstock.resources.objects import Key, Object, controller_of, is_controlled_by, is_terminating, key_of
from penstock.status.trouble import Trouble

_log = logging.getLogger(__name__)

NO_VERSION = "1"
"""A resourceVersion that no object has: the first write of a cluster is version 2. An apply that names it makes the
object if there is none, and is a conflict if there is one, so it can never change what it did not make."""

Answer = TypeVar("Answer")


class Blocked(Exception):  # noqa: N818 - a result that ends the pass early
    """A child cannot be applied.

    Attributes:
        trouble: Why, for status.
        retry: Whether growing delays should follow; else a slow, steady look is enough.
    """

    def __init__(self, trouble: Trouble, *, retry: bool) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble
        self.retry = retry


class Gone(Exception):  # noqa: N818 - likewise
    """A child vanished or is on its way out; its place will be free in a moment."""


class Children:
    """The children of all backends.

    Args:
        client: The API server.
        cache: What is known of the children; own writes are entered at once.
    """

    def __init__(self, client: Client, cache: Cache) -> None:
        self._client = client
        self._cache = cache
        self._applied: dict[tuple[Kind, Key], tuple[str, str]] = {}
        self._reached: dict[Key, int] = {}

    async def converge(
        self,
        owner_uid: str,
        backend: Key,
        desired: Sequence[Object],
        *,
        kept: Collection[tuple[Kind, Key]] = (),
    ) -> None:
        """Apply every desired child in order, then delete the others.

        Args:
            owner_uid: The backend's.
            backend: Whose children they are.
            desired: The children as they are applied.
            kept: Further children that stay as they are.

        Raises:
            Blocked: A child cannot be applied; those after it are left for the next pass.
            Gone: A child is being deleted, or was deleted just now.
            KubeError: The API server cannot be reached, or asks for a pause.
        """
        self._reached[backend] = 0
        for obj in desired:
            await self._apply(owner_uid, backend, obj)
            self._reached[backend] += 1
        await self._prune(owner_uid, backend, {(kind_of(obj), key_of(obj)) for obj in desired}.union(kept))

    def reached(self, backend: Key) -> int:
        """Return how many of the desired children were in place when the last `converge` ended."""
        return self._reached.get(backend, 0)

    def forget(self, backend: Key) -> None:
        """Drop what is remembered of a backend's children."""
        self._reached.pop(backend, None)
        for kind in CHILD_KINDS:
            for child in self._cache.of_backend(backend, kind):
                self._applied.pop((kind, key_of(child)), None)

    async def _apply(self, owner_uid: str, backend: Key, obj: Object) -> None:
        kind = kind_of(obj)
        key = key_of(obj)
        wanted = digest(obj)
        held = self._cache.get(kind, key)
        if held is None:
            if await self._make(backend, obj, wanted):
                return
            held = await self._live(kind, key)
        if held is not None:
            _check_ownership(owner_uid, backend, kind, held)
            if is_terminating(held):
                raise Gone(f"{kind} {key} is being deleted")
            if self._applied.get((kind, key)) == (wanted, _fingerprint(held, obj)):
                return
        started = time.monotonic()
        why = self._why(kind, key, wanted, held)
        # What is cut short half-way is done again, even if by then the child looks as it should.
        self._applied.pop((kind, key), None)
        answer = await self._put_right(kind, key, obj, held)
        self._cache.store(kind, answer)
        self._applied[kind, key] = (wanted, _fingerprint(answer, obj))
        if held is None or answer["metadata"]["resourceVersion"] != held["metadata"]["resourceVersion"]:
            _decided(backend, f"applied {kind} {key.name}", why, started)

    async def _make(self, backend: Key, obj: Object, wanted: str) -> bool:
        """Apply a child that must not exist, and tell whether it did not.

        Whoever has taken the name keeps it: unlike a look beforehand this leaves no moment in between.
        """
        kind, key = kind_of(obj), key_of(obj)
        new = {**obj, "metadata": {**obj["metadata"], "resourceVersion": NO_VERSION}}

        async def write() -> Object | None:
            with contextlib.suppress(Conflict):
                return await self._client.apply(new)
            return None

        started = time.monotonic()
        self._applied.pop((kind, key), None)
        answer = await self._send(kind, key, write())
        if answer is None:
            return False
        self._cache.store(kind, answer)
        self._applied[kind, key] = (wanted, _fingerprint(answer, obj))
        _decided(backend, f"applied {kind} {key.name}", "it was missing", started)
        return True

    def _why(self, kind: Kind, key: Key, wanted: str, held: Object | None) -> str:
        if held is None:
            return "it was missing"
        applied, _ = self._applied.get((kind, key), (None, None))
        if applied is None:
            return "it was not as this release wants it"
        return "something else is wanted now" if applied != wanted else "somebody had changed it"

    async def _put_right(self, kind: Kind, key: Key, desired: Object, held: Object | None) -> Object:
        """Apply a child, take out what an apply leaves, and return the child as it is then."""
        if held is None:
            return await self._send(kind, key, self._client.apply(desired))
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
            raise Blocked(_forbidden(kind, key, error), retry=True) from error

    async def _prune(self, owner_uid: str, backend: Key, wanted: Collection[tuple[Kind, Key]]) -> None:
        for kind in CHILD_KINDS:
            for child in self._cache.of_backend(backend, kind):
                key = key_of(child)
                if (kind, key) in wanted or is_terminating(child) or not is_controlled_by(child, owner_uid):
                    continue
                self._applied.pop((kind, key), None)
                started = time.monotonic()
                try:
                    await self._client.delete(kind, key, uid=child["metadata"]["uid"])
                except Conflict:
                    # Another object has taken the name since, and it is not ours to delete.
                    self._cache.drop(kind, key)
                else:
                    _decided(backend, f"deleted {kind} {key.name}", "it is no longer wanted", started)


def _decided(backend: Key, decision: str, reason: str, started: float) -> None:
    """Log a decision: in one line for people, and in fields of its own for machines."""
    took = round(time.monotonic() - started, 3)
    fields = {"backend": str(backend), "reason": reason, "took": took}
    _log.info("%s: %s, %s", backend, decision, reason, extra=fields)


def _check_ownership(owner_uid: str, backend: Key, kind: Kind, held: Object) -> None:
    """Refuse to touch an object that is not the backend's own.

    Raises:
        Gone: It belongs to an earlier backend of the same name and the garbage collector will take it.
        Blocked: It belongs to somebody else.
    """
    if is_controlled_by(held, owner_uid):
        return
    controller, key = controller_of(held), key_of(held)
    # The names of children are made from that of their backend, so those of two backends can meet.
    if controller is not None and (controller["kind"], controller["name"]) == (LLM_BACKEND.name, backend.name):
        raise Gone(f"{kind} {key} still belongs to an earlier backend")
    owner = f"belongs to {controller['kind']} {controller['name']}" if controller else "was not made by Penstock"
    message = (
        f"{kind} {key.name} exists and {owner}; it is left alone. Delete or rename it, or give the backend another name"
    )
    raise Blocked(Trouble(reason=Reason.NAME_TAKEN, message=message, stalled=True), retry=False)


def _forbidden(kind: Kind, key: Key, error: Forbidden) -> Trouble:
    if "exceeded quota" in error.server_message:
        message = f"a ResourceQuota leaves no room for {kind} {key.name}: {error.server_message}"
        return Trouble(reason=Reason.QUOTA_EXCEEDED, message=message)
    hint = "; grant the operator this permission" if error.missing_rule else ""
    message = f"{kind} {key.name} may not be applied: {error.server_message}{hint}"
    return Trouble(reason=Reason.CHILDREN_REFUSED, message=message)


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
