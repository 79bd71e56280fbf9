"""The drain key: 32 random bytes from which every backend's drain token is derived.

Nothing may replace it while pods run that hold tokens made from it, so it is kept in a Secret of its own
(`runtime.keysecret`).
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.kube.client import Client
from penstock.runtime.keysecret import KeySecret

SECRET_NAME = "penstock-drain-key"  # noqa: S105 - the Secret's name

_SECRET = KeySecret(name=SECRET_NAME, field="key", size_bytes=32, loss="all replicas are rolled")


async def ensure(client: Client, namespace: str, *, random_bytes: Callable[[int], bytes]) -> bytes:
    """Return the drain key, made now if there is none; see `KeySecret.ensure`."""
    return await _SECRET.ensure(client, namespace, random_bytes=random_bytes)
