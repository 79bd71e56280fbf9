"""Reads and writes of Kubernetes objects as dictionaries.

Every write of a child or a status is a server-side apply under one constant field manager: no read comes first, no
resourceVersion can conflict, fields that are no longer applied disappear, and foreign edits of applied fields are
reverted. The manager's name is part of the state in the cluster: changing it would orphan what it owns, so it carries
no version and never changes. The exceptions are DELETE, `create` for what must be made exactly once, `replace` for the
Lease, and `patch` for Events and for what an apply cannot take back (see `reconcile.repair`).

Theory of operation of a write. It waits for its turn in the pace (`kube.pace`), then for a connection. Between all that
waiting and the first byte on the wire stands the fence: the body asks it when it is about to be written, so a process
that was stopped while a request waited inside of it sends nothing when it goes on.

`kubernetes.aio` contributes the configuration (kubeconfig, service account with token rotation); its generated models
are not used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Protocol
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client.configuration import Configuration
from yarl import URL

from penstock.kube import connection
from penstock.kube.errors import KubeError, NotFound, NotLeading, TooManyRequests, Unavailable, from_response
from penstock.kube.kinds import Kind, kind_of
from penstock.kube.pace import Pace
from penstock.kube.request import (
    APPLY_PATCH,
    JSON,
    MERGE_PATCH,
    Fenced,
    Guard,
    Request,
    parse,
    to_json,
    to_yaml,
    unguarded,
)
from penstock.kube.shape import fault_of
from penstock.resources.objects import Key, Object, key_of

FIELD_MANAGER = "penstock"
REQUEST_TIMEOUT_SECONDS = 30.0
CONNECT_TIMEOUT_SECONDS = 5.0
CONNECTIONS = 32
PAGE_SIZE = 500

CallObserver = Callable[[str, str, str], None]
"""Told verb, kind and result (`ok` or the error's name) of every request."""


class Client(Protocol):
    """What the reconciler needs of an API server; `KubernetesClient` is the real one. All raise `KubeError`."""

    async def apply(self, obj: Object) -> Object:
        """Server-side apply. With `metadata.uid` set it never creates: a vanished object is a `Conflict`."""
        ...

    async def create(self, obj: Object) -> Object:
        """Create exactly once: `Conflict` when somebody was faster."""
        ...

    async def get(self, kind: Kind, key: Key) -> Object:
        """Return one object, read live."""
        ...

    async def list(
        self,
        kind: Kind,
        *,
        namespace: str | None = None,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> list[Object]:
        """Return all objects of a kind with these labels and field values; None as namespace means all namespaces."""
        ...

    async def delete(self, kind: Kind, key: Key, *, uid: str) -> None:
        """Delete that very object: `Conflict` when another has taken its name; success when it is already gone."""
        ...

    async def patch(self, kind: Kind, key: Key, patch: Object, *, uid: str) -> Object:
        """Merge a patch into that very object: `Conflict` when another has taken its name."""
        ...

    async def patch_status(self, obj: Object) -> Object:
        """Apply `status` of an object, which must exist."""
        ...

    async def replace(self, obj: Object) -> Object:
        """Replace an object as it was read: `Conflict` when its resourceVersion is no longer the newest."""
        ...

    async def read(self, path: str) -> Object:
        """Return a document that is no object of a kind: what the API server says of itself."""
        ...


class KubernetesClient:
    """`Client` over HTTP.

    Args:
        configuration: Where the API server is and who we are, see `kube.connection`.
        observe: Told the outcome of every request, for metrics.
        guard: Asked right before each write is sent, see `Guard`.
        pace: How fast writes may follow each other; None for no limit.
        connections: How many at most; further requests wait for one.
        timeout_seconds: For a whole request, the wait for a connection included.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        observe: CallObserver | None = None,
        guard: Guard = unguarded,
        pace: Pace | None = None,
        connections: int = CONNECTIONS,
        timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
    ) -> None:
        self._configuration = configuration
        self._observe = observe or (lambda _verb, _kind, _result: None)
        self._guard = guard
        self._pace = pace
        self._timeout_seconds = timeout_seconds
        self._session = connection.session(
            configuration,
            connections=connections,
            timeout=aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=CONNECT_TIMEOUT_SECONDS),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def apply(self, obj: Object) -> Object:
        """See `Client.apply`."""
        return await self._apply("apply", obj, "")

    async def patch_status(self, obj: Object) -> Object:
        """See `Client.patch_status`."""
        return await self._apply("patch_status", obj, "status")

    async def patch(self, kind: Kind, key: Key, patch: Object, *, uid: str) -> Object:
        """See `Client.patch`."""
        return await self._send(
            Request(
                verb="patch",
                kind=kind,
                target=str(key),
                method="PATCH",
                path=kind.path(key.namespace, key.name),
                query={"fieldManager": FIELD_MANAGER},
                body=to_json({**patch, "metadata": {**patch.get("metadata", {}), "uid": uid}}),
                content_type=MERGE_PATCH,
            )
        )

    async def create(self, obj: Object) -> Object:
        """See `Client.create`."""
        kind, key = kind_of(obj), key_of(obj)
        return await self._send(
            Request(
                verb="create",
                kind=kind,
                target=str(key),
                method="POST",
                path=kind.path(key.namespace),
                query={"fieldManager": FIELD_MANAGER},
                body=to_json(obj),
            )
        )

    async def replace(self, obj: Object) -> Object:
        """See `Client.replace`."""
        kind, key = kind_of(obj), key_of(obj)
        return await self._send(
            Request(
                verb="replace",
                kind=kind,
                target=str(key),
                method="PUT",
                path=kind.path(key.namespace, key.name),
                query={"fieldManager": FIELD_MANAGER},
                body=to_json(obj),
            )
        )

    async def read(self, path: str) -> Object:
        """See `Client.read`."""
        return await self._send(Request(verb="read", kind=None, target=path, method="GET", path=path))

    async def get(self, kind: Kind, key: Key) -> Object:
        """See `Client.get`."""
        path = kind.path(key.namespace, key.name)
        return await self._send(Request(verb="get", kind=kind, target=str(key), method="GET", path=path))

    async def list(
        self,
        kind: Kind,
        *,
        namespace: str | None = None,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> list[Object]:
        """See `Client.list`."""
        query = {"limit": str(PAGE_SIZE)}
        for parameter, selected in (("labelSelector", labels), ("fieldSelector", fields)):
            if selected:
                query[parameter] = ",".join(f"{name}={value}" for name, value in sorted(selected.items()))
        target = f"in {namespace}" if namespace else "in all namespaces"
        path = kind.path(namespace)
        objects: list[Object] = []
        while True:
            page = await self._send(
                Request(verb="list", kind=kind, target=target, method="GET", path=path, query=query)
            )
            objects += [{"apiVersion": kind.api_version, "kind": kind.name, **item} for item in page["items"]]
            token = page["metadata"].get("continue")
            if not token:
                return objects
            query = {**query, "continue": token}

    async def delete(self, kind: Kind, key: Key, *, uid: str) -> None:
        """See `Client.delete`."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        path = kind.path(key.namespace, key.name)
        with contextlib.suppress(NotFound):
            await self._send(
                Request(verb="delete", kind=kind, target=str(key), method="DELETE", path=path, body=to_json(options))
            )

    async def _apply(self, verb: str, obj: Object, subresource: str) -> Object:
        kind, key = kind_of(obj), key_of(obj)
        return await self._send(
            Request(
                verb=verb,
                kind=kind,
                target=str(key),
                method="PATCH",
                path=kind.path(key.namespace, key.name, subresource),
                query={"fieldManager": FIELD_MANAGER, "force": "true"},
                body=to_yaml(obj),
                content_type=APPLY_PATCH,
            )
        )

    async def _send(self, request: Request) -> Object:
        name = request.kind.name if request.kind else ""
        try:
            answer = await self._answer(request)
        except KubeError as error:
            self._observe(request.verb, name, type(error).__name__)
            if isinstance(error, TooManyRequests) and self._pace is not None:
                self._pace.pause(error.retry_after_seconds)
            raise
        self._observe(request.verb, name, "ok")
        return answer

    async def _answer(self, request: Request) -> Object:
        if self._pace is not None:
            await self._pace.turn(write=request.body is not None)
        host = self._configuration.host
        url = URL(host + request.path + (f"?{urlencode(request.query)}" if request.query else ""), encoded=True)
        headers = {"Accept": JSON}
        body = None
        try:
            bearer = await self._configuration.get_api_key_with_prefix("BearerToken")
            if bearer is not None:
                headers["Authorization"] = bearer
            if request.body is not None:
                body = Fenced(request.body, content_type=request.content_type, guard=self._guard)
            async with self._session.request(request.method, url, headers=headers, data=body) as response:
                content = await response.read()
        except TimeoutError as error:
            raise Unavailable(f"{request}: no answer from {host} within {self._timeout_seconds:.0f} s") from error
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error.__cause__, NotLeading):
                raise NotLeading(f"{request}: {error.__cause__}") from error
            raise Unavailable(f"{request}: cannot reach {host}: {error}") from error
        document = parse(content)
        if response.status >= 400:
            retry_after = response.headers.get("Retry-After")
            raise from_response(str(request), status=response.status, body=document, retry_after=retry_after)
        if document is None:
            raise Unavailable(f"{request}: {host} answered with something that is no JSON object")
        if fault := fault_of(request.verb, document):
            raise Unavailable(f"{request}: {host} answered with {fault}; is it an API server?")
        return document
