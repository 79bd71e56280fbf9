"""The slow loop with all it stands on: connections to pods, the key, and Prometheus where there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import aiohttp

from penstock.fleet.direct import DirectSource
from penstock.fleet.loop import Fleet
from penstock.fleet.push import Pusher
from penstock.fleet.rooms import LATE_PLACES, PLACES
from penstock.fleet.signals import SignalSource
from penstock.fleet.signing import SigningKey
from penstock.resources.objects import Key
from penstock.runtime.settings import OperatorSettings

if TYPE_CHECKING:
    from penstock.fleet.prometheus import PrometheusSource

CONNECTIONS = 2 * (PLACES + LATE_PLACES)
"""For all that is asked and pushed at the same time, so that nobody who has a place there waits here."""

CONNECTION_IDLE_SECONDS = 4.0
"""Rounds are further apart than limiters keep connections."""


class SlowLoop:
    """See the module's docstring; to be made in the event loop, and closed.

    Args:
        settings: The operator's.
        key: Signs pushes.
        may_push: Whether this operator leads, right now.
        epoch: How often the Lease has changed hands.
        changed: Told of a backend whose status is worth a look.

    Attributes:
        fleet: The loop.
        pusher: Sends limits.
    """

    def __init__(
        self,
        settings: OperatorSettings,
        key: SigningKey,
        *,
        may_push: Callable[[], bool],
        epoch: Callable[[], int],
        changed: Callable[[Key], None],
    ) -> None:
        connector = aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=CONNECTION_IDLE_SECONDS)
        # Whoever asks bounds the whole of it, so there is no need for further timers.
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), timeout=aiohttp.ClientTimeout(total=None)
        )
        self._prometheus = _prometheus(settings)
        self.pusher = Pusher(key, self._session, may_push=may_push, epoch=epoch)
        source: SignalSource | None = self._prometheus
        self.fleet = Fleet(
            direct=DirectSource(self._session),
            prometheus=source,
            pushes=self.pusher,
            interval_seconds=settings.slow_loop_interval_seconds,
            changed=changed,
        )

    async def close(self) -> None:
        """End all rounds."""
        await self.fleet.close()
        if self._prometheus is not None:
            self._prometheus.close()
        await self._session.close()


def _prometheus(settings: OperatorSettings) -> PrometheusSource | None:
    if not settings.prometheus_url:
        return None
    # Imported when it is needed: the library and what it brings cost memory that a fleet without Prometheus saves.
    from penstock.fleet.prometheus import SHARED_SECONDS, Connection, PrometheusSource  # noqa: PLC0415

    interval = settings.slow_loop_interval_seconds
    pairs = (header.partition("=") for header in settings.prometheus_headers)
    return PrometheusSource(
        Connection(
            url=settings.prometheus_url,
            headers={name: value for name, _, value in pairs},
            bearer_token_file=settings.prometheus_token_file,
            ca_file=settings.prometheus_ca_file,
            # Rounds that wait longer than that would let the limits run out that they push.
            timeout_seconds=min(settings.prometheus_timeout_seconds, interval),
            shared_seconds=min(SHARED_SECONDS, interval / 2),
        )
    )
