"""The keys of an installation: read or made when this replica begins to lead, and put back when somebody deletes them.

An operator that starts without a Secret makes another key. Another drain key rolls all replicas; another push key makes
them hold their limits until their policy files have arrived.
"""

from __future__ import annotations

import asyncio
import logging
import secrets

from penstock.fleet.signing import SigningKey
from penstock.kube.client import Client
from penstock.kube.errors import KubeError
from penstock.runtime import drainkey, pushkey

_log = logging.getLogger(__name__)


class InstallationKeys:
    """See the module's docstring.

    Args:
        client: The API server; its writes pass the fence.
        namespace: The operator's own.
        interval_seconds: Between two looks at the Secrets.

    Attributes:
        drain: The drain key; empty before `prepare`.
        push: The push key; None before `prepare`.
    """

    def __init__(self, client: Client, namespace: str, *, interval_seconds: float) -> None:
        self.drain = b""
        self.push: SigningKey | None = None
        self._client = client
        self._namespace = namespace
        self._interval_seconds = interval_seconds
        self._told: set[str] = set()

    async def prepare(self) -> None:
        """Read the keys, or make them.

        Raises:
            KubeError: One cannot be read or made.
        """
        self.drain = await drainkey.ensure(self._client, self._namespace, random_bytes=secrets.token_bytes)
        self.push = await pushkey.ensure(self._client, self._namespace, random_bytes=secrets.token_bytes)

    async def keep(self) -> None:
        """Put deleted keys back, until cancelled; to be called after `prepare`."""
        drain, push = self.drain, self.push
        assert push is not None  # noqa: S101 - prepared
        while True:
            await asyncio.sleep(self._interval_seconds)
            try:
                there = await drainkey.ensure(self._client, self._namespace, random_bytes=lambda _count: drain)
                self._compare(drainkey.SECRET_NAME, same=there == drain)
                other = await pushkey.ensure(self._client, self._namespace, random_bytes=lambda _count: push.seed)
                self._compare(pushkey.SECRET_NAME, same=other.id == push.id)
            except KubeError as error:
                _log.warning("the installation's keys could not be looked at and are tried again later: %s", error)

    def _compare(self, name: str, *, same: bool) -> None:
        """Tell once of a key that is not the one this operator works with."""
        if same:
            self._told.discard(name)
        elif name not in self._told:
            self._told.add(name)
            _log.warning(
                "Secret %s/%s holds another key than this operator works with; a restart takes it over",
                self._namespace,
                name,
            )
