"""Brings the children of one backend to what is desired: apply, and delete what is no longer wanted.

An apply is left out when it could change nothing: the desired object is the one applied last, and the object in the
cluster still is what the API server answered then. Both are remembered as digests, in memory only; a new process
applies everything once, which the API server recognises as no change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Sequence

from penstock.api.conditions import Reason
from penstock.kube.client import Client
from penstock.kube.errors import Conflict, Forbidden, Invalid, NotFound
from penstock.kube.kinds import CHILD_KINDS, LLM_BACKEND, Kind, kind_of
from penstock.reconcile.cache import Cache
from penstock.reconcile.repair import give_up, repair, replace
from penstock.resources.objects import Key, Object, controller_of, is_controlled_by, is_terminating, key_of
from penstock.status.trouble import Trouble


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

    async def converge(self, owner_uid: str, backend: Key, desired: Sequence[Object]) -> None:
        """Apply every desired child in order, then delete the others.

        Raises:
            Blocked: A child cannot be applied; those after it are left for the next pass.
            Gone: A child is being deleted, or was deleted just now.
            KubeError: The API server cannot be reached, or asks for a pause.
        """
        for obj in desired:
            await self._apply(owner_uid, obj)
        await self._prune(owner_uid, backend, desired)

    def forget(self, backend: Key) -> None:
        """Drop what is remembered of a backend's children."""
        for kind in CHILD_KINDS:
            for child in self._cache.of_backend(backend, kind):
                self._applied.pop((kind, key_of(child)), None)

    async def _apply(self, owner_uid: str, obj: Object) -> None:
        kind = kind_of(obj)
        key = key_of(obj)
        held = self._cache.get(kind, key)
        if held is None:
            held = await self._live(kind, key)
        if held is not None:
            _check_ownership(owner_uid, kind, key, held)
            if is_terminating(held):
                raise Gone(f"{kind} {key} is being deleted")
            if self._applied.get((kind, key)) == (_digest(obj), _fingerprint(held)):
                return
        answer = await self._put_right(kind, key, obj, held)
        self._cache.store(kind, answer)
        self._applied[kind, key] = (_digest(obj), _fingerprint(answer))

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

    async def _send(self, kind: Kind, key: Key, write: Awaitable[Object]) -> Object:
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

    async def _prune(self, owner_uid: str, backend: Key, desired: Sequence[Object]) -> None:
        wanted = {(kind_of(obj), key_of(obj)) for obj in desired}
        for kind in CHILD_KINDS:
            for child in self._cache.of_backend(backend, kind):
                key = key_of(child)
                if (kind, key) in wanted or is_terminating(child) or not is_controlled_by(child, owner_uid):
                    continue
                self._applied.pop((kind, key), None)
                try:
                    await self._client.delete(kind, key, uid=child["metadata"]["uid"])
                except Conflict:
                    # Another object has taken the name since, and it is not ours to delete.
                    self._cache.drop(kind, key)


def _check_ownership(owner_uid: str, kind: Kind, key: Key, held: Object) -> None:
    """Refuse to touch an object that is not the backend's own.

    Raises:
        Gone: It belongs to an earlier backend of the same name and the garbage collector will take it.
        Blocked: It belongs to somebody else.
    """
    if is_controlled_by(held, owner_uid):
        return
    controller = controller_of(held)
    if controller is not None and controller["kind"] == LLM_BACKEND.name:
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


def _digest(document: object) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _fingerprint(obj: Object) -> str:
    """Return a digest of all that an apply could change back: everything but status and bookkeeping."""
    bookkeeping = ("resourceVersion", "generation", "managedFields")
    metadata = {name: value for name, value in obj["metadata"].items() if name not in bookkeeping}
    return _digest({**{name: value for name, value in obj.items() if name != "status"}, "metadata": metadata})
