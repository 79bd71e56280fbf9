"""Deciding without enforcing."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.admission.ask import Ask, Granted, Place, Waiting
from penstock.admission.bands import Bands
from penstock.admission.gate import Gate
from penstock.admission.limit import Limit
from penstock.admission.permit import Outcome, Permit
from penstock.admission.shed import Shed
from penstock.api.admission import BUILT_IN_CLASSES, NORMAL


def gate_of(limit=2, **settings):
    return Gate(Bands(BUILT_IN_CLASSES), Limit(limit, ceiling=100), **settings)


def request(band="interactive", *, budget=30.0, **fields):
    return Ask(band=band, tenant="a", budget_seconds=budget, **fields)


STEPS = st.lists(
    st.one_of(
        st.builds(
            Ask,
            band=st.sampled_from(["interactive", NORMAL, "batch"]),
            tenant=st.sampled_from("abc"),
            requests=st.integers(1, 3),
            prefill_tokens=st.integers(0, 50),
            cost=st.integers(1, 100).map(float),
            budget_seconds=st.sampled_from([0.0, 2.0, 10.0, 100.0]),
        ),
        st.tuples(st.sampled_from(["finish", "first byte", "cancel"]), st.integers(0, 30)),
        st.sampled_from([0.1, 1.0, 5.0]),
    ),
    max_size=80,
)


class Pair:
    """An enforcing gate and one that is not: both see the same asks, and what runs in both ends at the same time."""

    def __init__(self, limit, *, per_ask, **settings):
        self.enforcing = gate_of(limit, **settings)
        self.shadow = gate_of(limit, shadow=not per_ask, **settings)
        self.running: list[tuple[Permit, Permit]] = []
        self.standing: dict[Waiting, Permit] = {}
        self.refused_requests = 0

    def ask(self, ask, now):
        answer = self.enforcing.ask(ask, now)
        shadowed = self.shadow.ask(ask, now, enforce=False)
        assert isinstance(shadowed, Permit)
        if isinstance(answer, Permit):
            assert shadowed.would is None
            self.running.append((answer, shadowed))
        elif isinstance(answer, Waiting):
            assert isinstance(shadowed.would, Waiting)
            self.standing[answer] = shadowed
        else:
            assert shadowed.would is answer
            self.refused_requests += ask.requests

    def use(self, what, index, now):
        """Let one of those that run in both gates answer or end."""
        if not self.running:
            return
        index %= len(self.running)
        for permit in self.running[index]:
            if what == "finish":
                permit.finish(Outcome.SUCCESS, now)
            elif what == "cancel":
                permit.cancel(now)
            else:
                permit.first_byte(now)
        if what != "first byte":
            del self.running[index]

    def advance(self, now):
        assert self.shadow.advance(now) == []
        for event in self.enforcing.advance(now):
            shadowed = self.standing.pop(event.waiting)
            if isinstance(event, Granted):
                assert shadowed.counts
                self.running.append((event.permit, shadowed))
            else:
                assert shadowed.would is event.shed
                self.refused_requests += shadowed.requests

    def compare(self):
        enforcing, shadow = self.enforcing, self.shadow
        assert shadow.books.shed == enforcing.books.shed
        assert shadow.depth_by_band == enforcing.depth_by_band
        assert all(shadowed.counts and shadowed.band == permit.band for permit, shadowed in self.running)
        assert not any(shadowed.counts for shadowed in self.standing.values())
        assert shadow.prefill_backlog == enforcing.prefill_backlog
        assert shadow.wake_at() == enforcing.wake_at()
        assert shadow.books.asked == shadow.books.admitted == enforcing.books.asked
        assert shadow.in_flight == enforcing.in_flight + enforcing.waiting_requests + self.refused_requests
        assert shadow.books.drift == enforcing.books.drift == 0


@given(STEPS, st.integers(1, 6), st.sampled_from([None, 0, 3]), st.sampled_from([None, 60]), st.booleans())
def test_decisions_and_counters_are_those_of_an_enforcing_gate(steps, limit, queue_limit, prefill_limit, per_ask):
    pair = Pair(limit, queue_limit=queue_limit, prefill_limit=prefill_limit, per_ask=per_ask)
    now = 0.0
    for step in steps:
        if isinstance(step, Ask):
            pair.ask(step, now)
        elif isinstance(step, float):
            now += step
        else:
            pair.use(*step, now)
        pair.advance(now)
        pair.compare()


def test_what_should_be_refused_changes_nothing_for_others():
    gate = gate_of(1, queue_limit=0, shadow=True)
    first = gate.ask(request(), 0.0)
    refused = [gate.ask(request(), 0.0) for _ in range(5)]
    assert {permit.would for permit in refused} == {Shed.QUEUE_FULL}
    first.finish(Outcome.SUCCESS, 1.0)
    assert gate.ask(request(), 1.0).would is None
    assert (gate.in_flight, [permit.counts for permit in refused]) == (6, [False] * 5)


def test_one_that_ends_before_its_turn_gives_its_place_up():
    gate = gate_of(1, shadow=True)
    gate.ask(request(), 0.0)
    second = gate.ask(request(), 0.0)
    assert gate.depth == 1
    second.finish(Outcome.SUCCESS, 1.0)
    assert (gate.depth, gate.in_flight, gate.books.left, gate.books.drift) == (0, 1, 0, 0)
    assert second.would.place is Place.LEFT


def test_from_shadow_to_enforcing_everything_in_flight_counts():
    gate = gate_of(2, queue_limit=1, shadow=True)
    permits = [gate.ask(request(prefill_tokens=10), 0.0) for _ in range(5)]
    assert [permit.counts for permit in permits] == [True, True, False, False, False]
    gate.configure(gate.bands, queue_limit=1, shadow=False, now=1.0)
    assert all(permit.counts for permit in permits)
    assert (gate.prefill_backlog, gate.depth) == (50, 0)
    waiting = gate.ask(request(), 1.0)
    assert isinstance(waiting, Waiting)
    for permit in permits[:3]:
        permit.cancel(2.0)
    assert gate.advance(2.0) == []
    permits[3].cancel(3.0)
    [event] = gate.advance(3.0)
    assert event.waiting is waiting
    permits[4].first_byte(4.0)
    permits[4].finish(Outcome.SUCCESS, 5.0)
    event.permit.finish(Outcome.SUCCESS, 5.0)
    assert (gate.in_flight, gate.prefill_backlog, gate.books.drift) == (0, 0, 0)


def test_from_enforcing_to_shadow_those_that_wait_keep_their_turn():
    gate = gate_of(1)
    permit = gate.ask(request(), 0.0)
    waiting = gate.ask(request(), 0.0)
    gate.configure(gate.bands, queue_limit=None, shadow=True, now=1.0)
    permit.finish(Outcome.SUCCESS, 2.0)
    [event] = gate.advance(2.0)
    assert event.waiting is waiting
