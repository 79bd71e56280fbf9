"""Metrics of admission: what the gate holds, what it decided, and how long requests waited.

Labels are bounded: classes come from the policy and reasons from a table; tenants never become labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from penstock.limiter import storemetrics

if TYPE_CHECKING:
    from penstock.limiter.admission import Admission

WAIT_BUCKETS_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class WaitHistogram:
    """How long requests stood in the queue, by class and by what became of them.

    Counted by hand: a histogram of the library costs more than the decision that it measures.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._sums: dict[tuple[str, str], float] = {}

    def observe(self, seconds: float, *, band: str, outcome: str) -> None:
        """Count one request that waits no longer."""
        counts = self._counts.setdefault((band, outcome), [0] * (len(WAIT_BUCKETS_SECONDS) + 1))
        counts[sum(seconds > bound for bound in WAIT_BUCKETS_SECONDS)] += 1
        self._sums[band, outcome] = self._sums.get((band, outcome), 0.0) + seconds

    def collect(self) -> Metric:
        """Return the metric."""
        found = HistogramMetricFamily(
            "penstock_queue_wait_seconds", "Time that requests waited for their turn", labels=["class", "outcome"]
        )
        bounds = [*map(str, WAIT_BUCKETS_SECONDS), "+Inf"]
        for (band, outcome), counts in self._counts.items():
            below = [sum(counts[: index + 1]) for index in range(len(counts))]
            found.add_metric([band, outcome], list(zip(bounds, below, strict=True)), self._sums[band, outcome])
        return found


def collect(admission: Admission) -> Iterator[Metric]:
    """Return the metrics of a replica's admission."""
    gate, books = admission.gate, admission.gate.books
    yield GaugeMetricFamily("penstock_in_flight", "Generation requests at the engine now", gate.in_flight)
    yield CounterMetricFamily("penstock_admitted", "Generation requests that got a permit", books.admitted)
    finished = CounterMetricFamily(
        "penstock_finished", "Permits returned by requests that the engine ended", labels=["outcome"]
    )
    for outcome, count in books.finished.items():
        finished.add_metric([outcome], count)
    yield finished
    yield CounterMetricFamily(
        "penstock_cancelled", "Permits returned because the client left or the limiter cut the request", books.cancelled
    )
    yield GaugeMetricFamily(
        "penstock_permit_drift", "admitted - finished - cancelled - in flight; anything but 0 is a defect", books.drift
    )
    limit = GaugeMetricFamily("penstock_limit", "The limit in force", labels=["kind"])
    limit.add_metric(["requests"], gate.limit.value)
    if gate.prefill_limit is not None:
        limit.add_metric(["prefill_tokens"], gate.prefill_limit)
    yield limit
    yield GaugeMetricFamily(
        "penstock_prefill_backlog_tokens",
        "Estimated prompt tokens of streamed requests whose answer has not begun",
        gate.prefill_backlog,
    )
    # Without a bound it is not there: no number would be true.
    rate = GaugeMetricFamily(
        "penstock_admission_rate_per_second", "R in force: requests per second that may go to the engine", labels=()
    )
    if gate.rate_per_second is not None:
        rate.add_metric((), gate.rate_per_second)
    yield rate
    yield CounterMetricFamily("penstock_paced", "Requests that R has held while there was room for them", books.paced)
    yield from _queue(admission)
    yield from storemetrics.collect(admission)
    yield CounterMetricFamily("penstock_retries", "Admitted requests that repeat an earlier one", books.retries)
    yield GaugeMetricFamily(
        "penstock_retry_budget", "Repetitions that would be admitted now", admission.retries.remaining(admission.now())
    )
    if admission.keys is not None:
        yield CounterMetricFamily(
            "penstock_api_keys_rejected", "Contents of the key folder that had a fault", admission.keys.rejected
        )


def _queue(admission: Admission) -> Iterator[Metric]:
    gate = admission.gate
    depth = GaugeMetricFamily("penstock_queue_depth", "Requests that wait for their turn", labels=["class"])
    for band, count in gate.depth_by_band.items():
        depth.add_metric([band], count)
    yield depth
    yield admission.room.waits.collect()
    yield CounterMetricFamily(
        "penstock_left_queue", "Requests whose client went away while they waited", gate.books.left
    )  # fmt: skip
    shed = CounterMetricFamily(
        "penstock_shed",
        "Requests that were decided to be refused; in shadow mode they go on all the same",
        labels=["class", "reason"],
    )
    for (band, reason), count in (gate.books.shed + admission.shed).items():
        shed.add_metric([band, reason], count)
    yield shed
    yield GaugeMetricFamily(
        "penstock_demand",
        "Requests in flight, waiting, and refused for load in the last 10 s: what an autoscaler should look at",
        gate.in_flight + len(admission.room) + admission.recently_shed.total(admission.now()),
    )
