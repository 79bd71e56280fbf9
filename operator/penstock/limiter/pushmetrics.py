"""Metrics of pushes: what became of them, and how much the one in force is still worth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from penstock.admission.pushed import Standing

if TYPE_CHECKING:
    from penstock.limiter.pushed import Pushes


def collect(pushes: Pushes, *, now: float) -> Iterator[Metric]:
    """Return the metrics of a replica's pushes; ages and versions only after the first."""
    results = CounterMetricFamily("penstock_push", "Pushes of limits, by result", labels=["result"])
    for result, count in pushes.results.items():
        results.add_metric([result], count)
    yield results
    acceptance = pushes.acceptance
    standing = GaugeMetricFamily(
        "penstock_push_standing", "1 for what the last push is worth: none, fresh, or held", labels=["standing"]
    )
    for each in Standing:
        standing.add_metric([each], int(each is acceptance.standing(now)))
    yield standing
    if acceptance.version is None:
        return
    yield GaugeMetricFamily(
        "penstock_push_age_seconds", "Time since the push in force came", acceptance.age_seconds(now)
    )
    yield GaugeMetricFamily(
        "penstock_push_ttl_left_seconds",
        "Time until the push in force is only held; 0 when it is",
        acceptance.ttl_left_seconds(now),
    )
    version = GaugeMetricFamily("penstock_push_version", "Version of the push in force", labels=["part"])
    version.add_metric(["epoch"], acceptance.version.epoch)
    version.add_metric(["counter"], acceptance.version.counter)
    yield version
    yield GaugeMetricFamily("penstock_push_peers", "Replicas that are believed as peers", len(acceptance.peers(now)))
    yield GaugeMetricFamily("penstock_push_share", "Part of shared quotas that was pushed", acceptance.share or 0.0)
