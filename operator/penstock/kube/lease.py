"""The Lease object by which the operator's replicas find out which of them leads."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from penstock.kube.candidacy import Record
from penstock.kube.client import Client
from penstock.kube.errors import NotFound, Unavailable
from penstock.kube.kinds import LEASE
from penstock.resources.labels import MANAGED_BY, MANAGER
from penstock.resources.objects import Key, Object, key_of


class KubernetesLease:
    """`kube.election.LeaseStore` in the cluster.

    Args:
        client: The API server; its writes must not ask the fence, which only they can open.
        key: Namespace and name of the Lease.
    """

    def __init__(self, client: Client, key: Key) -> None:
        self._client = client
        self._key = key

    async def read(self) -> Record | None:
        """See `LeaseStore.read`."""
        try:
            return _record_of(await self._client.get(LEASE, self._key))
        except NotFound:
            return None

    async def write(self, record: Record) -> Record:
        """See `LeaseStore.write`."""
        metadata: Object = {
            "name": self._key.name,
            "namespace": self._key.namespace,
            "labels": {MANAGED_BY: MANAGER},
        }
        obj: Object = {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.name,
            "metadata": metadata,
            "spec": {
                "holderIdentity": record.holder,
                "leaseDurationSeconds": max(1, math.ceil(record.duration)),
                "leaseTransitions": record.transitions,
                "acquireTime": record.acquired or _stamp(),
                "renewTime": _stamp(),
            },
        }
        if not record.version:
            return _record_of(await self._client.create(obj))
        metadata["resourceVersion"] = record.version
        return _record_of(await self._client.replace(obj))


def _record_of(lease: Object) -> Record:
    try:
        spec = lease.get("spec") or {}
        return Record(
            holder=str(spec.get("holderIdentity") or ""),
            duration=float(spec.get("leaseDurationSeconds") or 0),
            transitions=int(spec.get("leaseTransitions") or 0),
            acquired=str(spec.get("acquireTime") or ""),
            version=lease["metadata"]["resourceVersion"],
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise Unavailable(f"Lease {key_of(lease)}: the API server answered with a spec of another shape") from error


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
