"""Metrics of the slow loop: what it holds is read when somebody asks."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.api.push import PushResult
from penstock.api.status import SignalOrigin
from penstock.fleet.law import Rule
from penstock.fleet.loop import Fleet
from penstock.fleet.push import Pusher

LABELS = ("namespace", "backend")


class FleetMetrics(Collector):
    """See the module's docstring; without a loop, in a replica that stands by, there is nothing to show."""

    def __init__(self) -> None:
        self.fleet: Fleet | None = None
        self.pusher: Pusher | None = None

    def collect(self) -> Iterator[Metric]:
        """Return the metrics."""
        rate = GaugeMetricFamily(
            "penstock_backend_admission_rate_per_second",
            "R: requests per second that the backend admits; it may bind or not",
            labels=LABELS,
        )
        binds = GaugeMetricFamily(
            "penstock_backend_admission_rate_binds", "1 while limiters are held to R", labels=LABELS
        )
        pressure = GaugeMetricFamily(
            "penstock_pressure", "Largest pressure of a replica; 1 is fully loaded", labels=(*LABELS, "signal")
        )
        age = GaugeMetricFamily(
            "penstock_signal_age_seconds",
            "How old a signal is, of the replica where it is oldest; absent while it is not known",
            labels=(*LABELS, "signal"),
        )
        source = GaugeMetricFamily(
            "penstock_signal_source", "1 for where signals come from", labels=(*LABELS, "source")
        )
        rounds = CounterMetricFamily("penstock_slow_loop_rounds", "Rounds by the rule that decided", labels=["rule"])
        for key, view in self.fleet.views().items() if self.fleet is not None else ():
            names = [key.namespace, key.name]
            if view.rate.per_second is not None:
                rate.add_metric(names, view.rate.per_second)
            binds.add_metric(names, int(view.rate.binds))
            if view.pressure is not None:
                pressure.add_metric([*names, view.pressure.signal], view.pressure.ratio)
            for origin in SignalOrigin:
                source.add_metric([*names, origin], int(origin is view.origin))
            for signal, seconds in view.ages.items():
                age.add_metric([*names, signal], seconds)
        if self.fleet is not None:
            for rule in Rule:
                rounds.add_metric([rule], self.fleet.rounds[rule])
        yield from (rate, binds, pressure, age, source, rounds)
        pushes = CounterMetricFamily("penstock_pushes_sent", "Pushes to limiters by result", labels=["result"])
        if self.pusher is not None:
            for result in PushResult:
                pushes.add_metric([result], self.pusher.results[result])
        yield pushes
        yield CounterMetricFamily(
            "penstock_push_epoch_raised",
            "Limiters that had seen a later version than this operator could have given",
            self.pusher.raised if self.pusher is not None else 0,
        )
