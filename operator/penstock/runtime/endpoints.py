"""The operator's HTTP endpoints: `/healthz` and `/readyz` on one port, `/metrics` on another."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Endpoints:
    """Two small servers on the operator's own event loop, so that `/healthz` answers only while the loop turns.

    Args:
        registry: What `/metrics` shows.
        unready: Why the operator is not ready yet, for `/readyz`; empty once it is.
        sick: Why the process should be started anew, for `/healthz`; empty while it need not.
    """

    def __init__(self, registry: CollectorRegistry, *, unready: Callable[[], str], sick: Callable[[], str]) -> None:
        self._registry = registry
        self._unready = unready
        self._sick = sick
        self._runners: list[web.AppRunner] = []
        self.ports: list[int] = []

    async def start(self, address: str, *, health_port: int, metrics_port: int) -> None:
        """Listen.

        Raises:
            OSError: A port cannot be had.
        """
        health = web.Application()
        health.add_routes([web.get("/healthz", self._healthz), web.get("/readyz", self._readyz)])
        metrics = web.Application()
        metrics.add_routes([web.get("/metrics", self._metrics)])
        for application, port in ((health, health_port), (metrics, metrics_port)):
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
            await runner.setup()
            self._runners.append(runner)
            await web.TCPSite(runner, address, port).start()
            self.ports.append(runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening and close what is open."""
        while self._runners:
            await self._runners.pop().cleanup()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return _answer(self._sick())

    async def _readyz(self, _request: web.Request) -> web.Response:
        return _answer(self._unready())

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": METRICS_TYPE})


def _answer(trouble: str) -> web.Response:
    return web.Response(status=503, text=f"{trouble}\n") if trouble else web.Response(text="ok\n")
