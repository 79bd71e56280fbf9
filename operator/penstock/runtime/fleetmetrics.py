"""Metrics of the slow loop: what it holds is read when somebody asks."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.api.push import PushResult
from penstock.api.status import SignalOrigin
from penstock.fleet.push import Pusher
from penstock.fleet.target import FleetView
from penstock.resources.objects import Key

LABELS = ("namespace", "backend")


class FleetMetrics(Collector):
    """See the module's docstring; without a loop, in a replica that stands by, there is nothing to show."""

    def __init__(self) -> None:
        self.views: Callable[[], Mapping[Key, FleetView]] = dict
        self.pusher: Pusher | None = None

    def collect(self) -> Iterator[Metric]:
        """Return the metrics."""
        rate = GaugeMetricFamily(
            "penstock_admission_rate",
            "R: requests per second that the backend admits; it may bind or not",
            labels=LABELS,
        )
        binds = GaugeMetricFamily("penstock_admission_rate_binds", "1 while limiters are held to R", labels=LABELS)
        pressure = GaugeMetricFamily(
            "penstock_pressure", "Largest pressure of a replica; 1 is fully loaded", labels=(*LABELS, "signal")
        )
        age = GaugeMetricFamily("penstock_signal_age_seconds", "Age of the signal behind the pressure", labels=LABELS)
        source = GaugeMetricFamily(
            "penstock_signal_source", "1 for where signals come from", labels=(*LABELS, "source")
        )
        rounds = CounterMetricFamily("penstock_slow_loop_rounds", "Rounds by the rule that decided", labels=["rule"])
        tally: Tally[str] = Tally()
        for key, view in self.views().items():
            names = [key.namespace, key.name]
            if view.rate.per_second is not None:
                rate.add_metric(names, view.rate.per_second)
            binds.add_metric(names, int(view.rate.binds))
            if view.pressure is not None:
                pressure.add_metric([*names, view.pressure.signal], view.pressure.ratio)
                age.add_metric(names, view.pressure.age_seconds)
            for origin in SignalOrigin:
                source.add_metric([*names, origin], int(origin is view.origin))
            tally.update(view.rules)
        for rule, count in tally.items():
            rounds.add_metric([rule], count)
        yield from (rate, binds, pressure, age, source, rounds)
        pushes = CounterMetricFamily("penstock_push", "Pushes to limiters by result", labels=["result"])
        if self.pusher is not None:
            for result in PushResult:
                pushes.add_metric([result], self.pusher.results[result])
        yield pushes
