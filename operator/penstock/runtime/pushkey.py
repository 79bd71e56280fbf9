"""The push key: an Ed25519 key pair; limiters believe pushes that it has signed.

It is kept like the drain key (`runtime.keysecret`), but its loss costs little. Nothing in a pod's template depends on
it: limiters read the public key in their policy file, so another key pair counts as soon as the ConfigMaps have
arrived, and until then replicas hold the limits that they have.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.fleet.signing import SEED_BYTES, SigningKey
from penstock.kube.client import Client
from penstock.runtime.keysecret import KeySecret

SECRET_NAME = "penstock-push-key"  # noqa: S105 - the Secret's name

_SECRET = KeySecret(
    name=SECRET_NAME,
    field="private",
    size_bytes=SEED_BYTES,
    loss="no replica is replaced",
    shown=lambda seed: {"public": SigningKey(seed).public},
)


async def ensure(client: Client, namespace: str, *, random_bytes: Callable[[int], bytes]) -> SigningKey:
    """Return the push key, made now if there is none; see `KeySecret.ensure`.

    The public half in the Secret is there for people to compare: it follows from the other.
    """
    return SigningKey(await _SECRET.ensure(client, namespace, random_bytes=random_bytes))
