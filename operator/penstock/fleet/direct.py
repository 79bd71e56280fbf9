"""Signals from the limiters themselves: one `/state` per replica, as many at a time as there is room for.

Nothing has to be installed for it, so it is what a fleet without Prometheus lives on, and what it falls back to.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import aiohttp
from yarl import URL

from penstock.api.replica import ADMIN_PORT
from penstock.fleet.rooms import Rooms
from penstock.fleet.signals import HeldBy, Replica, ReplicaSignals, Signal, Subject

TIMEOUT_SECONDS = 1.0
STATE_LIMIT_BYTES = 64 * 1024

_log = logging.getLogger(__name__)


class DirectSource:
    """See the module's docstring.

    Args:
        session: For requests to pods; it belongs to the caller.
        port: The admin port of limiters.
    """

    def __init__(self, session: aiohttp.ClientSession, *, port: int = ADMIN_PORT) -> None:
        self._session = session
        self._port = port
        self._rooms = Rooms(timeout_seconds=TIMEOUT_SECONDS)

    async def read(self, subject: Subject) -> Mapping[str, ReplicaSignals]:
        """See `SignalSource`; replicas that do not answer are left out, and this never raises."""
        found = await asyncio.gather(*(self._read(replica) for replica in subject.replicas))
        return {
            replica.name: signals
            for replica, signals in zip(subject.replicas, found, strict=True)
            if signals is not None
        }

    async def _read(self, replica: Replica) -> ReplicaSignals | None:
        try:
            return await self._rooms.ask(replica.uid, lambda: self._ask(replica))
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError, RecursionError) as error:
            _log.debug("the limiter at %s could not be read: %r", replica.address, error)
            return None

    async def _ask(self, replica: Replica) -> ReplicaSignals | None:
        url = URL.build(scheme="http", host=replica.address, port=self._port, path="/state")
        async with self._session.get(url, allow_redirects=False) as response:
            content = await response.content.read(STATE_LIMIT_BYTES)
            while not response.content.at_eof() and len(content) < STATE_LIMIT_BYTES:
                content += await response.content.read(STATE_LIMIT_BYTES)
            return signals_of(json.loads(content)) if response.status == 200 else None


def signals_of(state: object) -> ReplicaSignals | None:
    """Return what a limiter's `/state` tells, None when it is something else; what it does not tell is unknown."""
    if not isinstance(state, Mapping):
        return None
    boot_id, pushed = state.get("bootId"), state.get("pushed")
    known = ReplicaSignals(
        boot_id=boot_id if isinstance(boot_id, str) else None,
        pushed_rate=_number(pushed, "ratePerSecond") if isinstance(pushed, Mapping) else None,
    )
    values = state.get("signals")
    if not isinstance(values, Mapping):
        return known
    held_by = values.get("heldBy")
    engine_age = _number(values, "engineAgeSeconds")
    return replace(
        known,
        waiting=_signal(values, "waiting", engine_age),
        running=_signal(values, "running", engine_age),
        kv_cache_percent=_signal(values, "kvCachePercent", engine_age),
        queue_wait_ratio=_signal(values, "queueWaitRatio", 0.0),
        admitted_per_second=_signal(values, "admittedPerSecond", 0.0),
        first_token_milliseconds=_signal(values, "firstTokenMilliseconds", 0.0),
        limit=_signal(values, "limit", 0.0),
        held_by=HeldBy(held_by) if held_by in tuple(HeldBy) else None,
    )


def _signal(values: Mapping[str, Any], name: str, age_seconds: float | None) -> Signal | None:
    value = _number(values, name)
    return None if value is None or age_seconds is None else Signal(value, age_seconds)


def _number(values: Mapping[str, Any], name: str) -> float | None:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
