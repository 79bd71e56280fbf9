"""A cluster in memory that answers as the API server would, as far as the reconciler can tell."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from penstock.kube import errors
from penstock.kube.kinds import LLM_BACKEND, Kind, kind_of
from penstock.resources.objects import Key, Object, key_of
from penstock.resources.settings import BuildSettings

ADDED_TO = ("selector",)


class FakeCluster:
    """Objects by kind and key; implements `penstock.kube.client.Client`.

    An apply replaces everything but status, and leaves what was added to a selector. That is coarser than the real one
    and shows the same to a reconciler: one manager, versions that rise only on change, uids as preconditions.

    Attributes:
        calls: Verb, kind and name of every request, in order.
        failures: Errors to raise, by verb and kind; a list is used up.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[Kind, Key], Object] = {}
        self.calls: list[tuple[str, str, str]] = []
        self.failures: dict[tuple[str, str], list[Exception]] = {}
        self._version = 100
        self._uids = 0

    @property
    def writes(self) -> list[tuple[str, str, str]]:
        """The requests that may change something."""
        return [call for call in self.calls if call[0] not in ("get", "list")]

    def put(self, obj: Object) -> Object:
        """Place an object as somebody else would, and return it as stored."""
        obj = copy.deepcopy(obj)
        obj["metadata"].setdefault("uid", self._uid())
        obj["metadata"]["generation"] = obj["metadata"].get("generation", 0) + 1
        return self._store(obj)

    def remove(self, kind: Kind, key: Key) -> Object:
        """Delete an object as somebody else would, and return it as the watch shows it."""
        gone = self.objects.pop((kind, key))
        self._version += 1
        gone["metadata"]["resourceVersion"] = str(self._version)
        return gone

    async def apply(self, obj: Object) -> Object:
        old = self.objects.get((kind_of(obj), key_of(obj)))
        version = obj["metadata"].get("resourceVersion")
        if version is not None and old is not None and old["metadata"]["resourceVersion"] != version:
            raise error(errors.Conflict, 409, "the object has been modified")  # changes nothing, so it is no write
        self._called("apply", kind_of(obj), obj["metadata"]["name"])
        uid = obj["metadata"].get("uid")
        if uid is not None and (old is None or old["metadata"]["uid"] != uid):
            raise error(errors.Conflict, 409, "Precondition failed: UID mismatch")
        new = copy.deepcopy(obj)
        for name in ADDED_TO:
            if old is not None and name in obj.get("spec", {}) and name in old.get("spec", {}):
                new["spec"][name] = {**old["spec"][name], **new["spec"][name]}
        new["metadata"]["uid"] = old["metadata"]["uid"] if old else self._uid()
        new["metadata"]["generation"] = old["metadata"]["generation"] if old else 1
        if old is not None:
            new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
            if "status" in old:
                new["status"] = old["status"]
            if new == old:
                return copy.deepcopy(old)
            if new.get("spec") != old.get("spec"):
                new["metadata"]["generation"] += 1
        return self._store(new)

    async def patch(self, kind: Kind, key: Key, patch: Object, *, uid: str) -> Object:
        self._called("patch", kind, key.name)
        if self.objects[kind, key]["metadata"]["uid"] != uid:
            raise error(errors.Conflict, 409, "Precondition failed: UID mismatch")
        new = copy.deepcopy(self.objects[kind, key])
        pinned = patch.get("metadata", {}).get("resourceVersion", new["metadata"]["resourceVersion"])
        if pinned != new["metadata"]["resourceVersion"]:
            raise error(errors.Conflict, 409, "the object has been modified")
        for name, value in patch["spec"].items():
            new["spec"][name] = {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value
        return self._store(new)

    async def patch_status(self, obj: Object) -> Object:
        self._called("patch_status", kind_of(obj), obj["metadata"]["name"])
        old = self.objects.get((kind_of(obj), key_of(obj)))
        if old is None:
            raise error(errors.NotFound, 404, "not found")
        return self._store({**old, "status": copy.deepcopy(obj["status"])})

    async def create(self, obj: Object) -> Object:
        self._called("create", kind_of(obj), obj["metadata"]["name"])
        if (kind_of(obj), key_of(obj)) in self.objects:
            raise error(errors.Conflict, 409, "exists", reason="AlreadyExists")
        return self.put(obj)

    async def get(self, kind: Kind, key: Key) -> Object:
        self._called("get", kind, key.name)
        if (kind, key) not in self.objects:
            raise error(errors.NotFound, 404, "not found")
        return copy.deepcopy(self.objects[kind, key])

    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        self._called("list", kind, namespace or "")
        return [
            copy.deepcopy(obj)
            for (of_kind, key), obj in self.objects.items()
            if of_kind == kind
            and namespace in (None, key.namespace)
            and (labels or {}).items() <= obj["metadata"].get("labels", {}).items()
        ]

    async def delete(self, kind: Kind, key: Key, *, uid: str) -> None:
        self._called("delete", kind, key.name)
        obj = self.objects.get((kind, key))
        if obj is not None and obj["metadata"]["uid"] != uid:
            raise error(errors.Conflict, 409, "uid")
        self.objects.pop((kind, key), None)

    def _called(self, verb: str, kind: Kind, name: str) -> None:
        self.calls.append((verb, kind.name, name))
        failures = self.failures.get((verb, kind.name))
        if failures:
            raise failures.pop(0)

    def _store(self, obj: Object) -> Object:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        self.objects[kind_of(obj), key_of(obj)] = obj
        return copy.deepcopy(obj)

    def _uid(self) -> str:
        self._uids += 1
        return f"uid-{self._uids}"


def error(kind: type[errors.Refused], status: int, message: str, *, reason: str = "") -> errors.Refused:
    return kind("test", status=status, reason=reason, server_message=message)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def settings() -> BuildSettings:
    return BuildSettings(limiter_image="penstock:1", drain_key=b"k" * 32)


@pytest.fixture
def make_error() -> Callable[..., errors.Refused]:
    return error


@pytest.fixture
def make_backend() -> Callable[..., Object]:
    def make(name: str = "smol", **spec: Any) -> Object:
        return {
            "apiVersion": LLM_BACKEND.api_version,
            "kind": LLM_BACKEND.name,
            "metadata": {"name": name, "namespace": "team"},
            "spec": {
                "engine": {"type": "LlamaCpp", "image": "llama.cpp:server-b11434"},
                "model": {"name": "m", "source": {"baked": {"path": "/m.gguf"}}},
                **spec,
            },
        }

    return make
