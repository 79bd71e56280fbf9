"""The limiter's own metrics: read from plain counters when somebody asks, so that serving costs nothing extra."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.limiter import admissionmetrics, pushmetrics
from penstock.limiter.drain import Phase

if TYPE_CHECKING:
    from penstock.limiter.limiter import Limiter

LAG_INTERVAL_SECONDS = 0.5
LAG_BUCKETS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """The registry, and the watch over the event loop.

    Attributes:
        registry: What `/metrics` shows.
    """

    def __init__(self, limiter: Limiter) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_LimiterCollector(limiter))
        self._lag = Histogram(
            "penstock_event_loop_lag_seconds",
            "How late the event loop ran a timer; one process is one core, and this rises when it is full",
            buckets=LAG_BUCKETS_SECONDS,
            registry=self.registry,
        )

    def render(self) -> bytes:
        """Return the exposition text."""
        return generate_latest(self.registry)

    async def watch_lag(self) -> None:
        """Measure the event loop's lag until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_INTERVAL_SECONDS
            await asyncio.sleep(LAG_INTERVAL_SECONDS)
            self._lag.observe(max(0.0, loop.time() - due))


class _LimiterCollector(Collector):
    """Turns the limiter's counters into metric families."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    def collect(self) -> Iterator[Metric]:
        yield from admissionmetrics.collect(self._limiter.admission)
        yield from pushmetrics.collect(self._limiter.pushes, now=self._limiter.admission.now())
        yield from self._requests()
        yield from self._state()

    def _requests(self) -> Iterator[Metric]:
        relay = self._limiter.relay
        requests = CounterMetricFamily(
            "penstock_requests", "Requests passed to the engine, by how they ended", labels=["class", "end"]
        )
        for (request_class, end), count in relay.ends.items():
            requests.add_metric([request_class, end], count)
        yield requests
        refusals = CounterMetricFamily(
            "penstock_refusals", "Answers of the limiter's own, by reason", labels=["reason"]
        )
        for reason, count in relay.refusals.items():
            refusals.add_metric([reason], count)
        yield refusals
        coalesced = CounterMetricFamily(
            "penstock_coalesced",
            "Requests that were, or in shadow mode would be, served without a run of their own, and what else was done",
            labels=["kind"],
        )
        for kind, count in relay.coalescing.counts.items():
            coalesced.add_metric([kind], count)
        yield coalesced
        yield GaugeMetricFamily(
            "penstock_recorded_bytes",
            "Memory held by answers that can be told again",
            relay.coalescing.runs.total_bytes,
        )
        yield CounterMetricFamily(
            "penstock_response_body_bytes", "Response body bytes sent to clients", relay.bytes_sent
        )
        yield GaugeMetricFamily("penstock_client_connections", "Open connections of clients", len(relay.connections))
        yield GaugeMetricFamily("penstock_engine_idle_connections", "Idle connections to the engine", len(relay.pool))
        yield GaugeMetricFamily(
            "penstock_request_body_bytes", "Memory held by request bodies now", relay.budget.held_bytes
        )

    def _state(self) -> Iterator[Metric]:
        limiter = self._limiter
        view = limiter.poller.view
        yield GaugeMetricFamily(
            "penstock_engine_up", "1 when the engine was healthy when last heard of", int(view.ready)
        )
        looks = CounterMetricFamily("penstock_engine_polls", "Looks at the engine, by result", labels=["result"])
        for sight, count in view.looks.items():
            looks.add_metric([sight], count)
        yield looks
        phase = GaugeMetricFamily("penstock_drain_state", "1 for the state the drain is in", labels=["state"])
        for each in Phase:
            phase.add_metric([each], int(each is limiter.drainer.state.phase))
        yield phase
        yield CounterMetricFamily(
            "penstock_drain_token_rejected", "Calls of /drain with a wrong token", limiter.admin.rejected_tokens
        )
        policy = limiter.policy
        yield GaugeMetricFamily(
            "penstock_policy_unknown_keys",
            "Keys of the policy file this version does not know",
            len(policy.unknown_keys),
        )
        yield CounterMetricFamily("penstock_policy_rejected", "Policy files that were not valid", policy.rejected)
