"""The operator's metrics."""

from __future__ import annotations

from collections import Counter as Tally

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from penstock.api.conditions import ConditionStatus, ConditionType
from penstock.kube.kinds import LLM_BACKEND
from penstock.reconcile.cache import Cache
from penstock.reconcile.queue import WorkQueue
from penstock.resources.objects import Key, Object

PREFIX = "penstock_operator"


class Metrics:
    """All metrics of one operator, in a registry of its own.

    Attributes:
        registry: What `/metrics` shows.
    """

    def __init__(self, queue: WorkQueue[Key], cache: Cache) -> None:
        self.registry = CollectorRegistry()
        self._reconciles = Counter(
            f"{PREFIX}_reconciles_total", "Reconciles by outcome.", ["outcome"], registry=self.registry
        )
        self._seconds = Histogram(f"{PREFIX}_reconcile_seconds", "Duration of reconciles.", registry=self.registry)
        self._requests = Counter(
            f"{PREFIX}_api_requests_total",
            "Requests to the API server by verb, kind and result (ok or the error).",
            ["verb", "kind", "result"],
            registry=self.registry,
        )
        depth = Gauge(f"{PREFIX}_queue_depth", "Backends that wait for a reconcile.", registry=self.registry)
        depth.set_function(lambda: queue.depth)
        oldest = Gauge(
            f"{PREFIX}_queue_oldest_seconds", "How long the first of them has waited.", registry=self.registry
        )
        oldest.set_function(queue.oldest_seconds)
        self.registry.register(_Backends(cache))

    def reconciled(self, outcome: str, seconds: float) -> None:
        """Count a reconcile."""
        self._reconciles.labels(outcome.lower()).inc()
        self._seconds.observe(seconds)

    def requested(self, verb: str, kind: str, result: str) -> None:
        """Count a request to the API server."""
        self._requests.labels(verb, kind, result).inc()


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
