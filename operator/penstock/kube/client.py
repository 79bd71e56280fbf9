"""Reads and writes of Kubernetes objects as dictionaries.

Every write of a child or a status is a server-side apply under one constant field manager: no read comes first, no
resourceVersion can conflict, fields that are no longer applied disappear, and foreign edits of applied fields are
reverted. The manager's name is part of the state in the cluster: changing it would orphan what it owns, so it carries
no version and never changes. The exceptions are DELETE, `create` for what must be made exactly once, and `patch` for
what an apply cannot take back (see `reconcile.repair`).

`kubernetes.aio` contributes the configuration (kubeconfig, service account with token rotation) and the authenticated
HTTP session; its generated models are not used.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from penstock.kube.errors import KubeError, NotFound, Unavailable, from_response
from penstock.kube.kinds import Kind, kind_of
from penstock.resources.objects import Key, Object, key_of

FIELD_MANAGER = "penstock"
REQUEST_TIMEOUT_SECONDS = 30.0
CONNECT_TIMEOUT_SECONDS = 5.0
PAGE_SIZE = 500

JSON = "application/json"
APPLY_PATCH = "application/apply-patch+yaml; charset=utf-8"
"""With a charset the session sends text as it is given; without one it would encode it as JSON."""

MERGE_PATCH = "application/merge-patch+json"

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
        self, kind: Kind, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """Return all objects of a kind that carry these labels; None as namespace means all namespaces."""
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


@dataclass(frozen=True, kw_only=True)
class _Request:
    """One request; `verb` and `target` are for messages and metrics, the rest goes over the wire."""

    verb: str
    kind: Kind
    target: str
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Object | str | None = None
    content_type: str = JSON

    def __str__(self) -> str:
        return f"{self.verb} {self.kind} {self.target}"


class KubernetesClient:
    """`Client` over HTTP.

    Args:
        configuration: Where the API server is and who we are, see `kube.connection`.
        observe: Told the outcome of every request, for metrics.
    """

    def __init__(self, configuration: Configuration, *, observe: CallObserver | None = None) -> None:
        self._configuration = configuration
        self._rest = RESTClientObject(configuration)
        self._observe = observe or (lambda _verb, _kind, _result: None)
        self._timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS, connect=CONNECT_TIMEOUT_SECONDS)

    async def close(self) -> None:
        """Close the connections."""
        await self._rest.close()

    async def apply(self, obj: Object) -> Object:
        """See `Client.apply`."""
        return await self._apply("apply", obj, "")

    async def patch_status(self, obj: Object) -> Object:
        """See `Client.patch_status`."""
        return await self._apply("patch_status", obj, "status")

    async def patch(self, kind: Kind, key: Key, patch: Object, *, uid: str) -> Object:
        """See `Client.patch`."""
        return await self._send(
            _Request(
                verb="patch",
                kind=kind,
                target=str(key),
                method="PATCH",
                path=kind.path(key.namespace, key.name),
                query={"fieldManager": FIELD_MANAGER},
                body={**patch, "metadata": {**patch.get("metadata", {}), "uid": uid}},
                content_type=MERGE_PATCH,
            )
        )

    async def create(self, obj: Object) -> Object:
        """See `Client.create`."""
        kind, key = kind_of(obj), key_of(obj)
        return await self._send(
            _Request(
                verb="create",
                kind=kind,
                target=str(key),
                method="POST",
                path=kind.path(key.namespace),
                query={"fieldManager": FIELD_MANAGER},
                body=obj,
            )
        )

    async def get(self, kind: Kind, key: Key) -> Object:
        """See `Client.get`."""
        path = kind.path(key.namespace, key.name)
        return await self._send(_Request(verb="get", kind=kind, target=str(key), method="GET", path=path))

    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """See `Client.list`."""
        query = {"limit": str(PAGE_SIZE)}
        if labels:
            query["labelSelector"] = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
        target = f"in {namespace}" if namespace else "in all namespaces"
        path = kind.path(namespace)
        objects: list[Object] = []
        while True:
            page = await self._send(
                _Request(verb="list", kind=kind, target=target, method="GET", path=path, query=query)
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
                _Request(verb="delete", kind=kind, target=str(key), method="DELETE", path=path, body=options)
            )

    async def _apply(self, verb: str, obj: Object, subresource: str) -> Object:
        kind, key = kind_of(obj), key_of(obj)
        return await self._send(
            _Request(
                verb=verb,
                kind=kind,
                target=str(key),
                method="PATCH",
                path=kind.path(key.namespace, key.name, subresource),
                query={"fieldManager": FIELD_MANAGER, "force": "true"},
                body=_yaml(obj),
                content_type=APPLY_PATCH,
            )
        )

    async def _send(self, request: _Request) -> Object:
        try:
            answer = await self._answer(request)
        except KubeError as error:
            self._observe(request.verb, request.kind.name, type(error).__name__)
            raise
        self._observe(request.verb, request.kind.name, "ok")
        return answer

    async def _answer(self, request: _Request) -> Object:
        host = self._configuration.host
        url = host + request.path + (f"?{urlencode(request.query)}" if request.query else "")
        headers = {"Accept": JSON, "User-Agent": FIELD_MANAGER, "Content-Type": request.content_type}
        try:
            bearer = await self._configuration.get_api_key_with_prefix("BearerToken")
            if bearer is not None:
                headers["Authorization"] = bearer
            response = await self._rest.request(  # type: ignore[no-untyped-call]
                request.method, url, headers=headers, body=request.body, _request_timeout=self._timeout
            )
            content = await response.read()
        except TimeoutError as error:
            raise Unavailable(f"{request}: no answer from {host} within {REQUEST_TIMEOUT_SECONDS:.0f} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"{request}: cannot reach {host}: {error}") from error
        document = _parse(content)
        if response.status >= 400:
            retry_after = response.headers.get("Retry-After")
            raise from_response(str(request), status=response.status, body=document, retry_after=retry_after)
        if document is None:
            raise Unavailable(f"{request}: {host} answered with something that is no JSON object")
        return document


_ESCAPE = re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|\\.")


def _yaml(obj: Object) -> str:
    """Return JSON that is YAML too, as an apply is read: surrogate pairs and DEL are where the two differ."""

    def escape(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        point = 0x10000 + ((int(match[1], 16) - 0xD800) << 10) + int(match[2], 16) - 0xDC00
        return f"\\U{point:08x}"

    return _ESCAPE.sub(escape, json.dumps(obj)).replace("\x7f", "\\u007f")


def _parse(content: bytes) -> Object | None:
    try:
        document: Any = json.loads(content)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
