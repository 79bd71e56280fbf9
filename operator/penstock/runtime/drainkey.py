"""The drain key: 32 random bytes in a Secret, made once for an installation and shared by all its operators.

Every backend's drain token is derived from it. The Secret is created, never applied: of two operators that start
together one creates it and the other reads that one's, and nothing ever overwrites it, because pods that run hold
tokens made from it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

from penstock.kube.client import Client
from penstock.kube.errors import Conflict, KubeError, NotFound
from penstock.kube.kinds import SECRET
from penstock.resources.labels import MANAGED_BY, MANAGER
from penstock.resources.objects import Key, Object

SECRET_NAME = "penstock-drain-key"  # noqa: S105 - the Secret's name
KEY = "key"
KEY_BYTES = 32


class DrainKeyUnusable(KubeError):  # noqa: N818 - says what happened
    """The Secret holds something that is no drain key."""


async def ensure(client: Client, namespace: str, *, random_bytes: Callable[[int], bytes]) -> bytes:
    """Return the drain key, made now if there is none.

    Args:
        client: The API server.
        namespace: The operator's own.
        random_bytes: Cryptographically strong randomness, `secrets.token_bytes`.

    Raises:
        DrainKeyUnusable: The Secret exists and holds no key of the right length.
        KubeError: The API server refuses or cannot be reached.
    """
    try:
        return _key_in(await client.get(SECRET, Key(namespace, SECRET_NAME)))
    except NotFound:
        pass
    secret: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET_NAME, "namespace": namespace, "labels": {MANAGED_BY: MANAGER}},
        "type": "Opaque",
        "data": {KEY: base64.b64encode(random_bytes(KEY_BYTES)).decode()},
    }
    try:
        return _key_in(await client.create(secret))
    except Conflict:
        return _key_in(await client.get(SECRET, Key(namespace, SECRET_NAME)))


def _key_in(secret: Object) -> bytes:
    try:
        key = base64.b64decode(secret.get("data", {}).get(KEY, ""), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise DrainKeyUnusable(
            f"Secret {secret['metadata']['namespace']}/{SECRET_NAME} must hold {KEY_BYTES} bytes under `{KEY}`; "
            "restore it, or delete it and restart the operator, which rolls all replicas"
        )
    return key
