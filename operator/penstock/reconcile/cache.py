"""What the cluster holds, as far as it has been heard: plain dictionaries fed by events, by lists and by own writes.

Three sources report on the same object in no fixed order, so an older report never replaces a newer one: resource
versions of one API server's objects can be compared as numbers. A deletion leaves a mark with its own version behind,
so that the late answer to an earlier write cannot bring the object back.

Objects are kept without what nobody here reads: `managedFields`, and the spec of pods.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from penstock.kube.kinds import LLM_BACKEND, POD, Kind
from penstock.resources.labels import BACKEND
from penstock.resources.objects import Key, Object, controller_of, key_of

MARKS = 10_000
"""How many deletions are remembered; a write is answered long before that many have followed."""

_Place = tuple[Kind, Key]


class Cache:
    """See the module's docstring. Returned objects belong to the cache and must not be changed."""

    def __init__(self) -> None:
        self._objects: dict[Kind, dict[Key, Object]] = {}
        self._by_backend: dict[Key, set[_Place]] = {}
        self._marks: OrderedDict[_Place, int] = OrderedDict()

    def get(self, kind: Kind, key: Key) -> Object | None:
        """Return an object, or None when it is not known."""
        return self._objects.get(kind, {}).get(key)

    def holds(self, kind: Kind, obj: Object) -> bool:
        """Tell whether an object is held in this very version, as it is when our own write comes back as an event."""
        held = self.get(kind, key_of(obj))
        return held is not None and _version(held) == _version(obj) != 0

    def all(self, kind: Kind) -> dict[Key, Object]:
        """Return all objects of a kind."""
        return dict(self._objects.get(kind, {}))

    def of_backend(self, backend: Key, kind: Kind) -> list[Object]:
        """Return the children or pods of one kind that name this backend, by owner reference or by label."""
        return [self._objects[kind][key] for of_kind, key in self._by_backend.get(backend, ()) if of_kind == kind]

    def store(self, kind: Kind, obj: Object) -> bool:
        """Take an observed object in and tell whether it differs in anything but its version from what was held."""
        key = key_of(obj)
        place = (kind, key)
        held = self.get(kind, key)
        version = _version(obj)
        if version <= self._marks.get(place, -1) or (held is not None and version < _version(held)):
            return False
        obj = _stripped(kind, obj)
        self._forget(kind, key)
        self._objects.setdefault(kind, {})[key] = obj
        backend = backend_of(kind, obj)
        if backend is not None:
            self._by_backend.setdefault(backend, set()).add(place)
        return held is None or _content(held) != _content(obj)

    def take(self, kind: Kind, obj: Object) -> set[Key]:
        """Take an observed object in and return the backends for which that is news: its own, and its former one."""
        before = self.get(kind, key_of(obj))
        return keys_of(kind, (obj, before) if before is not None else (obj,)) if self.store(kind, obj) else set()

    def remove(self, kind: Kind, obj: Object) -> bool:
        """Take note that an object is gone and tell whether it was held."""
        key = key_of(obj)
        version = _version(obj)
        self._marks[kind, key] = max(version, self._marks.get((kind, key), -1))
        self._marks.move_to_end((kind, key))
        while len(self._marks) > MARKS:
            self._marks.popitem(last=False)
        held = self.get(kind, key)
        if held is None or _version(held) > version:
            return False
        self._forget(kind, key)
        return True

    def drop(self, kind: Kind, key: Key) -> None:
        """Forget an object that turned out not to be what was held, without knowing what is there now."""
        self._forget(kind, key)

    def _forget(self, kind: Kind, key: Key) -> None:
        held = self._objects.get(kind, {}).pop(key, None)
        backend = backend_of(kind, held) if held is not None else None
        if backend is not None:
            places = self._by_backend[backend]
            places.discard((kind, key))
            if not places:
                del self._by_backend[backend]


def backend_of(kind: Kind, obj: Object) -> Key | None:
    """Return the backend that an object concerns: itself, its controller, or the one a pod's label names."""
    key = key_of(obj)
    if kind == LLM_BACKEND:
        return key
    if kind == POD:
        name = obj["metadata"].get("labels", {}).get(BACKEND)
        return Key(key.namespace, name) if name else None
    controller = controller_of(obj)
    if controller is None or (controller["apiVersion"], controller["kind"]) != (
        LLM_BACKEND.api_version,
        LLM_BACKEND.name,
    ):
        return None
    return Key(key.namespace, controller["name"])


def keys_of(kind: Kind, objects: Iterable[Object]) -> set[Key]:
    """Return the backends that these objects concern."""
    return {backend for obj in objects if (backend := backend_of(kind, obj)) is not None}


def _version(obj: Object) -> int:
    text = str(obj["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdigit() else 0


def _content(obj: Object) -> Object:
    metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
    return {**obj, "metadata": metadata}


def _stripped(kind: Kind, obj: Object) -> Object:
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    stripped = {**obj, "metadata": metadata}
    if kind == POD:
        stripped.pop("spec", None)
    return stripped
