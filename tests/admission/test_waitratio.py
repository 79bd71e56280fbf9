"""What the gate tells of its queue: how full it is in time, and who holds it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admission.ask import Ask, Waiting
from penstock.admission.bands import Bands
from penstock.admission.gate import Gate
from penstock.admission.gatestate import HeldBy
from penstock.admission.limit import Limit
from penstock.admission.permit import Outcome, Permit
from penstock.admission.shed import Shed
from penstock.api.admission import BUILT_IN_CLASSES


def request(band="normal", *, budget=30.0):
    return Ask(band=band, tenant="a", budget_seconds=budget)


class Engine:
    """A gate with one place, whose engine serves one request a second."""

    def __init__(self):
        self.gate = Gate(Bands(BUILT_IN_CLASSES), Limit(1, ceiling=10), queue_limit=1000)
        self.now = 0.0
        self.permit = None
        self.shed = []

    def ask(self, band="normal", **fields):
        decision = self.gate.ask(request(band, **fields), self.now)
        if isinstance(decision, Permit):
            self.permit = decision
        elif isinstance(decision, Shed):
            self.shed.append(decision)
        self.gate.advance(self.now)

    def serve(self, seconds, *, arriving=0):
        for _ in range(seconds):
            self.now += 1.0
            if self.permit is not None:
                self.permit.finish(Outcome.SUCCESS, self.now)
                self.permit = None
            for event in self.gate.advance(self.now):
                if hasattr(event, "permit"):
                    self.permit = event.permit
            for _ in range(arriving):
                self.ask()

    @property
    def ratio(self):
        return self.gate.wait_ratio(self.now)


@pytest.fixture
def engine():
    return Engine()


def test_an_empty_queue_is_0(engine):
    assert engine.ratio == 0
    engine.ask()
    assert engine.ratio == 0


def test_before_anything_can_be_predicted_it_is_how_long_the_first_has_waited(engine):
    engine.ask()
    engine.ask()
    engine.now += 15.0
    assert engine.ratio == pytest.approx(0.5)


def test_it_is_the_wait_of_one_that_comes_now_as_a_part_of_what_its_class_may_wait(engine):
    for _ in range(20):
        engine.ask()
    engine.serve(8)
    waiting = engine.gate.depth
    assert engine.ratio == pytest.approx((waiting + 1) / 30, rel=0.1)


def test_a_queue_that_is_longer_than_its_budget_is_above_1_while_requests_are_refused_for_it(engine):
    engine.ask()
    seen = []
    for _ in range(120):
        engine.serve(1, arriving=3)
        seen.append(engine.ratio)
    assert Shed.WAIT_TOO_LONG in engine.shed
    assert min(seen[60:]) > 0.9
    assert max(seen[60:]) > 1.0
    assert engine.gate.held_by is HeldBy.LIMIT


def test_clients_in_a_hurry_do_not_make_it_look_longer(engine):
    engine.ask()
    engine.ask(budget=1.0)
    engine.now += 0.9
    assert engine.ratio == pytest.approx(0.9 / 30)


def test_a_bound_of_all_classes_counts(engine):
    engine.gate.longest_wait_seconds = 3.0
    engine.ask()
    engine.ask()
    engine.now += 1.5
    assert engine.ratio == pytest.approx(0.5)


def test_the_class_that_is_worst_off_counts(engine):
    engine.ask()
    engine.ask("batch")
    engine.ask("interactive")
    engine.now += 5.0
    assert engine.ratio == pytest.approx(0.5)


def test_who_r_has_held_back_lately_is_not_the_engines(engine):
    gate = engine.gate
    gate.limit.set(5, "test")
    gate.set_rate(0.1, 0.0)
    for _ in range(3):
        engine.ask()
    assert (gate.held_by, gate.held_by_within(10.0, 5.0)) == (HeldBy.RATE, HeldBy.RATE)
    gate.limit.set(1, "test")
    gate.advance(6.0)
    assert (gate.held_by, gate.held_by_within(10.0, 6.0)) == (HeldBy.LIMIT, HeldBy.RATE)
    assert gate.held_by_within(10.0, 17.0) is HeldBy.LIMIT


def test_requests_that_r_has_held_are_counted_once(engine):
    gate = engine.gate
    gate.limit.set(10, "test")
    gate.set_rate(1.0, 0.0)
    for _ in range(3):
        engine.ask()
    for now in (0.1, 0.2, 1.0, 1.1, 2.0):
        gate.advance(now)
    assert (gate.books.paced, gate.depth) == (2, 0)


def test_who_waits_for_the_limit_alone_is_not_counted(engine):
    engine.gate.set_rate(1000.0, 0.0)
    engine.ask()
    engine.now = 1.0
    engine.ask()
    engine.gate.advance(2.0)
    assert (engine.gate.depth, engine.gate.books.paced) == (1, 0)


@given(
    st.lists(
        st.tuples(st.floats(0, 5), st.integers(0, 6), st.booleans(), st.sampled_from([None, 0.2, 3.0])), max_size=40
    )
)
def test_what_r_holds_back_never_counts_as_the_engines(steps):
    """As long as R holds requests now and then, the queue says nothing of the engine, however long it is."""
    gate, now, permits = Gate(Bands(BUILT_IN_CLASSES), Limit(2, ceiling=10), queue_limit=100), 0.0, []
    held_at = None
    for pause, arriving, ends, rate in steps:
        now += pause
        if ends and permits:
            permits.pop().cancel(now)
        gate.set_rate(rate, now)
        for _ in range(arriving):
            decision = gate.ask(request(), now)
            if isinstance(decision, Permit):
                permits.append(decision)
            else:
                assert isinstance(decision, Waiting | Shed)
        permits += [event.permit for event in gate.advance(now) if hasattr(event, "permit")]
        if gate.held_by is HeldBy.RATE:
            held_at = now
        if held_at is not None and now - held_at < 10.0:
            assert gate.held_by_within(10.0, now) is HeldBy.RATE
