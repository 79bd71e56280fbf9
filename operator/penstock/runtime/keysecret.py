"""A Secret with a key, made once for an installation and shared by all its operators.

It is created, never applied: of two operators that start together one creates it and the other reads that one's, and
nothing ever overwrites it. A Secret that holds something else is left alone, and said.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.kube.client import Client
from penstock.kube.errors import Conflict, KubeError, NotFound
from penstock.kube.kinds import SECRET
from penstock.resources.labels import MANAGED_BY, MANAGER
from penstock.resources.objects import Key, Object


class KeyUnusable(KubeError):  # noqa: N818 - says what happened
    """The Secret holds something that is no key."""


def _nothing(_key: bytes) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySecret:
    """See the module's docstring.

    Attributes:
        name: The Secret's.
        field: Where in its data the key is.
        size_bytes: How long the key is.
        loss: What it costs to have another key, for whoever has to choose.
        shown: What stands beside a key for people, by field, in base64.
    """

    name: str
    field: str
    size_bytes: int
    loss: str
    shown: Callable[[bytes], Mapping[str, str]] = _nothing

    async def ensure(self, client: Client, namespace: str, *, random_bytes: Callable[[int], bytes]) -> bytes:
        """Return the key, made now if there is none.

        Args:
            client: The API server.
            namespace: The operator's own.
            random_bytes: Cryptographically strong randomness, `secrets.token_bytes`.

        Raises:
            KeyUnusable: The Secret exists and holds no key of the right length.
            KubeError: The API server refuses or cannot be reached.
        """
        place = Key(namespace, self.name)
        try:
            return self._key_in(await client.get(SECRET, place))
        except NotFound:
            pass
        try:
            return self._key_in(await client.create(self._secret(namespace, random_bytes(self.size_bytes))))
        except Conflict:
            return self._key_in(await client.get(SECRET, place))

    def _secret(self, namespace: str, key: bytes) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self.name, "namespace": namespace, "labels": {MANAGED_BY: MANAGER}},
            "type": "Opaque",
            "data": {self.field: base64.b64encode(key).decode(), **self.shown(key)},
        }

    def _key_in(self, secret: Object) -> bytes:
        try:
            key = base64.b64decode((secret.get("data") or {}).get(self.field, ""), validate=True)
        except binascii.Error:
            key = b""
        if len(key) != self.size_bytes:
            raise KeyUnusable(
                f"Secret {secret['metadata']['namespace']}/{self.name} must hold {self.size_bytes} bytes under "
                f"`{self.field}`; restore it, or delete it and restart the operator: {self.loss}"
            )
        return key
