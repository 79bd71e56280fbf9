"""Metrics of quotas: the store that replicas share, and holders that were forgotten too early."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

if TYPE_CHECKING:
    from penstock.limiter.admission import Admission


def collect(admission: Admission) -> Iterator[Metric]:
    """Return the metrics; those of a store only when there is one."""
    yield CounterMetricFamily(
        "penstock_quota_overruns",
        "Tenants or addresses forgotten although something was counted for them: there are more than can be counted",
        admission.charges.quotas.overruns,
    )
    if admission.lingering is not None:
        yield GaugeMetricFamily(
            "penstock_lingering_permits",
            "Requests whose client has left and whose slot is not free yet",
            len(admission.lingering),
        )
        yield CounterMetricFamily(
            "penstock_permits_given_up",
            "Permits returned although the engine had not shown the slot free in time",
            admission.lingering.given_up,
        )
    store = admission.store
    if store.url is None:
        return
    yield GaugeMetricFamily("penstock_store_up", "1 while shared quotas are counted in the store", int(store.in_use))
    decisions = CounterMetricFamily(
        "penstock_store_decisions", "Requests with shared quotas, by who decided about them", labels=["by"]
    )
    for by, count in store.decided.items():
        decisions.add_metric([by], count)
    yield decisions
    failures = CounterMetricFamily(
        "penstock_store_failures",
        "How often the store went out of use or could not be used, by cause",
        labels=["cause"],
    )
    for cause, count in store.failures.items():
        failures.add_metric([cause], count)
    yield failures
    yield SummaryMetricFamily(
        "penstock_store_answer_seconds",
        "Time that answers of the store took",
        count_value=store.decided["store"],
        sum_value=store.answer_seconds,
    )
    yield GaugeMetricFamily(
        "penstock_store_waiting_corrections", "Corrections that wait to be sent to the store", len(store.corrections)
    )
    yield CounterMetricFamily(
        "penstock_store_lost_corrections", "Corrections that the store may not have", store.corrections.lost
    )
