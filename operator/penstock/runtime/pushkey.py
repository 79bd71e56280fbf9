"""The push key: an Ed25519 key pair in a Secret, made once for an installation and shared by all its operators.

Limiters believe pushes that it has signed. Like the drain key it is created, never applied: of two operators that start
together one creates it and the other reads that one's. What differs is what its loss costs. Nothing in a pod's template
depends on it: limiters read the public key in their policy file, so another key pair counts as soon as the ConfigMaps
have arrived, and until then replicas hold the limits that they have.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

from penstock.fleet.signing import SEED_BYTES, SigningKey
from penstock.kube.client import Client
from penstock.kube.errors import Conflict, KubeError, NotFound
from penstock.kube.kinds import SECRET
from penstock.resources.labels import MANAGED_BY, MANAGER
from penstock.resources.objects import Key, Object

SECRET_NAME = "penstock-push-key"  # noqa: S105 - the Secret's name
PRIVATE = "private"
PUBLIC = "public"


class PushKeyUnusable(KubeError):  # noqa: N818 - says what happened
    """The Secret holds something that is no push key."""


async def ensure(client: Client, namespace: str, *, random_bytes: Callable[[int], bytes]) -> SigningKey:
    """Return the push key, made now if there is none.

    Args:
        client: The API server.
        namespace: The operator's own.
        random_bytes: Cryptographically strong randomness, `secrets.token_bytes`.

    Raises:
        PushKeyUnusable: The Secret exists and holds no key.
        KubeError: The API server refuses or cannot be reached.
    """
    try:
        return _key_in(await client.get(SECRET, Key(namespace, SECRET_NAME)))
    except NotFound:
        pass
    seed = random_bytes(SEED_BYTES)
    secret: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET_NAME, "namespace": namespace, "labels": {MANAGED_BY: MANAGER}},
        "type": "Opaque",
        "data": {PRIVATE: base64.b64encode(seed).decode(), PUBLIC: SigningKey(seed).public},
    }
    try:
        return _key_in(await client.create(secret))
    except Conflict:
        return _key_in(await client.get(SECRET, Key(namespace, SECRET_NAME)))


def _key_in(secret: Object) -> SigningKey:
    """Return the pair; the public half is there for people to compare, and follows from the other."""
    try:
        seed = base64.b64decode((secret.get("data") or {}).get(PRIVATE, ""), validate=True)
    except binascii.Error:
        seed = b""
    if len(seed) != SEED_BYTES:
        raise PushKeyUnusable(
            f"Secret {secret['metadata']['namespace']}/{SECRET_NAME} must hold {SEED_BYTES} bytes under `{PRIVATE}`; "
            "restore it, or delete it and restart the operator: no replica is replaced"
        )
    return SigningKey(seed)
