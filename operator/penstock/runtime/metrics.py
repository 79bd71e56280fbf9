"""The operator's metrics."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from penstock.api.conditions import ConditionStatus, ConditionType
from penstock.fleet.loop import Fleet
from penstock.fleet.push import Pusher
from penstock.kube.kinds import LLM_BACKEND
from penstock.reconcile.cache import Cache
from penstock.reconcile.queue import WorkQueue
from penstock.resources.objects import Key, Object
from penstock.runtime.fleetmetrics import FleetMetrics

PREFIX = "penstock_operator"


class Metrics:
    """All metrics of one operator, in a registry of its own.

    Attributes:
        registry: What `/metrics` shows.
    """

    def __init__(
        self,
        queue: WorkQueue[Key],
        cache: Cache,
        *,
        leading: Callable[[], bool],
        oldest_watch: Callable[[], float],
    ) -> None:
        self.registry = CollectorRegistry()
        self._reconciles = Counter(
            f"{PREFIX}_reconciles_total", "Reconciles by outcome.", ["outcome"], registry=self.registry
        )
        self._seconds = Histogram(f"{PREFIX}_reconcile_seconds", "Duration of reconciles.", registry=self.registry)
        self._applies = Counter(
            f"{PREFIX}_applies_total",
            "Server-side applies of children and statuses by kind and result (ok or the error).",
            ["kind", "result"],
            registry=self.registry,
        )
        self._events = Counter(
            f"{PREFIX}_events_total",
            "Events by result: ok, dropped because too many waited, or the error.",
            ["result"],
            registry=self.registry,
        )
        self._requests = Counter(
            f"{PREFIX}_api_requests_total",
            "Requests to the API server by verb, kind and result (ok or the error).",
            ["verb", "kind", "result"],
            registry=self.registry,
        )
        depth = Gauge(f"{PREFIX}_queue_depth", "Backends that wait for a reconcile.", registry=self.registry)
        # A replica that stands by fills its queue and works on none of it.
        depth.set_function(lambda: queue.depth if leading() else 0)
        oldest = Gauge(
            f"{PREFIX}_queue_oldest_seconds", "How long the first of them has waited.", registry=self.registry
        )
        oldest.set_function(lambda: queue.oldest_seconds() if leading() else 0.0)
        leader = Gauge(f"{PREFIX}_leader", "1 while this replica is the one that works.", registry=self.registry)
        leader.set_function(lambda: float(leading()))
        watch = Gauge(
            f"{PREFIX}_watch_oldest_seconds",
            "How long ago the watch that has been silent for longest gave a sign of life.",
            registry=self.registry,
        )
        watch.set_function(oldest_watch)
        self.registry.register(_Backends(cache))
        self._fleet = FleetMetrics()
        self.registry.register(self._fleet)

    def watch_fleet(self, fleet: Fleet, pusher: Pusher) -> None:
        """Show the slow loop from now on."""
        self._fleet.fleet, self._fleet.pusher = fleet, pusher

    def reconciled(self, outcome: str, seconds: float) -> None:
        """Count a reconcile."""
        self._reconciles.labels(outcome.lower()).inc()
        self._seconds.observe(seconds)

    def recorded(self, result: str) -> None:
        """Count an Event."""
        self._events.labels(result).inc()

    def requested(self, verb: str, kind: str, result: str) -> None:
        """Count a request to the API server."""
        self._requests.labels(verb, kind, result).inc()
        if verb in ("apply", "patch_status"):
            self._applies.labels(kind, result).inc()


class _Backends(Collector):
    """Counts the known backends at the time of a scrape."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def collect(self) -> list[GaugeMetricFamily]:
        """Return the counts by readiness, all three answers always present."""
        tally = Tally(_ready(backend) for backend in self._cache.all(LLM_BACKEND).values())
        family = GaugeMetricFamily(f"{PREFIX}_backends", "LLMBackends by readiness.", labels=["ready"])
        for answer in ConditionStatus:
            family.add_metric([answer.value], tally[answer.value])
        return [family]


def _ready(backend: Object) -> str:
    for condition in backend.get("status", {}).get("conditions", ()):
        if condition["type"] == ConditionType.READY:
            return str(condition["status"])
    return ConditionStatus.UNKNOWN.value
