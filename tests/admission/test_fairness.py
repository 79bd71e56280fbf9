"""Fairness of the whole gate in front of an engine, in virtual time."""

import heapq
import random
from collections import Counter

import pytest

from penstock.admission.ask import Ask, Granted
from penstock.admission.bands import Bands
from penstock.admission.gate import Gate
from penstock.admission.limit import Limit
from penstock.admission.permit import Outcome, Permit
from penstock.admission.shed import Shed
from penstock.api.admission import BUILT_IN_CLASSES, NORMAL, PriorityClass

COST = 100.0
ONE_CLASS = (PriorityClass(name=NORMAL),)


class Engine:
    """Serves what the gate admits; a request takes a second per 100 of its cost."""

    def __init__(self, gate):
        self.gate = gate
        self.served = Counter()
        self.refused = Counter()
        self.waits = {}
        self._events = []
        self._number = 0

    def at(self, when, what):
        self._number += 1
        heapq.heappush(self._events, (when, self._number, what))

    def arrivals(self, tenant, *, per_second, until, seed, weight=1.0, band=NORMAL, budget=60.0):
        """Let a tenant ask at random times for requests of random cost."""
        times = random.Random(seed)

        def arrive(now):
            ask = Ask(
                band=band,
                tenant=tenant,
                weight=weight,
                cost=times.uniform(0.2, 1.8) * COST,
                budget_seconds=budget,
            )
            answer = self.gate.ask(ask, now)
            if isinstance(answer, Permit):
                self.start(answer, ask, now, waited=0.0)
            elif isinstance(answer, Shed):
                self.refused[tenant] += 1
            if now < until:
                self.at(now + times.expovariate(per_second), arrive)

        self.at(times.expovariate(per_second), arrive)

    def start(self, permit, ask, now, *, waited):
        self.waits.setdefault(ask.tenant, []).append(waited)

        def end(later):
            self.served[ask.tenant] += ask.cost
            permit.finish(Outcome.SUCCESS, later)

        self.at(now + ask.cost / COST, end)

    def run(self, *, until):
        while self._events and self._events[0][0] < until:
            now, _, what = heapq.heappop(self._events)
            what(now)
            for event in self.gate.advance(now):
                ask = event.waiting.ask
                if isinstance(event, Granted):
                    self.start(event.permit, ask, now, waited=event.waited_seconds)
                else:
                    self.refused[ask.tenant] += 1


def engine_with(limit, *, classes=ONE_CLASS, **settings):
    return Engine(Gate(Bands(classes), Limit(limit, ceiling=limit), **settings))


def jain(values):
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


@pytest.mark.parametrize("queue_limit", [None, 30], ids=["queue of 80", "queue of 30"])
def test_equal_tenants_get_equal_work_with_one_that_asks_ten_times_as_often(queue_limit):
    """Eight tenants ask for twice what the engine can do, one of them for ten times the part of another."""
    engine = engine_with(8, queue_limit=queue_limit)
    for index in range(8):
        engine.arrivals(f"tenant-{index}", per_second=20.0 if index == 0 else 2.0, until=400.0, seed=index)
    engine.run(until=400.0)
    assert jain(list(engine.served.values())) >= 0.98
    assert engine.refused["tenant-0"] > 5 * engine.refused["tenant-1"]


def test_a_tenant_below_its_share_hardly_notices_a_flood():
    """The engine has room for 4 requests a second; the victim asks for less than its half."""
    engine = engine_with(4)
    engine.arrivals("victim", per_second=1.2, until=300.0, seed=1, budget=10.0)
    engine.arrivals("flood", per_second=40.0, until=300.0, seed=2, budget=10.0)
    engine.run(until=300.0)
    assert engine.refused["victim"] == 0
    waits = sorted(engine.waits["victim"])
    assert waits[int(0.99 * len(waits))] < 4.0
    assert sum(engine.served.values()) / COST > 0.95 * 4 * 300  # and nothing is left unused


@pytest.mark.parametrize("weights", [(1, 2), (1, 3, 6)], ids=str)
def test_weights_are_obeyed_within_five_per_cent(weights):
    engine = engine_with(8)
    for index, weight in enumerate(weights):
        engine.arrivals(f"{weight}", per_second=20.0, until=600.0, seed=index, weight=weight)
    engine.run(until=600.0)
    total = sum(engine.served.values())
    for weight in weights:
        assert engine.served[f"{weight}"] / total == pytest.approx(weight / sum(weights), rel=0.05)


def test_nobody_in_a_band_starves_behind_another():
    engine = engine_with(4, queue_limit=1000)
    engine.arrivals("flood", per_second=30.0, until=200.0, seed=1, budget=1000.0)
    for index in range(20):
        engine.arrivals(f"small-{index}", per_second=0.1, until=200.0, seed=10 + index, budget=1000.0)
    engine.run(until=200.0)
    small = [wait for tenant, waits in engine.waits.items() if tenant != "flood" for wait in waits]
    assert len(small) > 300
    assert max(small) < 25.0


def test_under_load_the_lowest_class_gives_way_first():
    engine = engine_with(10, classes=BUILT_IN_CLASSES)
    for seed, band in enumerate(("interactive", NORMAL, "batch")):
        engine.arrivals(band, per_second=5.0, until=300.0, seed=seed, band=band, budget=10.0)
    engine.run(until=300.0)
    assert engine.refused["interactive"] == 0
    assert engine.refused["batch"] > 5 * engine.refused[NORMAL]
