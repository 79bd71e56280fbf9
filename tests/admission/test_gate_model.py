"""The gate against a model: whatever happens in whatever order, nothing is lost, nobody is passed over.

The model knows only what the caller sees, and the rules in their plainest form. It does not know how the gate does it.
"""

from dataclasses import dataclass
from math import ceil

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.admission.ask import Ask, Granted, Waiting
from penstock.admission.bands import Bands
from penstock.admission.gate import Gate
from penstock.admission.gatestate import HeldBy
from penstock.admission.limit import Limit
from penstock.admission.permit import Outcome, Permit
from penstock.admission.shed import Shed
from penstock.api.admission import BUILT_IN_CLASSES, NORMAL, PriorityClass

POLICIES = (
    BUILT_IN_CLASSES,
    (PriorityClass(name=NORMAL),),
    (
        PriorityClass(name="interactive", ceiling_percent=70, reserved_percent=20),
        PriorityClass(name=NORMAL, ceiling_percent=100),
        PriorityClass(name="batch", ceiling_percent=40, reserved_percent=30, sheddable=True),
    ),
    (
        PriorityClass(name="batch", reserved_percent=50, sheddable=True),
        PriorityClass(name="other", ceiling_percent=50, reserved_percent=50, sheddable=True),
        PriorityClass(name=NORMAL),
    ),
)


@dataclass(eq=False)
class Known:
    """A request that is waiting or in flight, as the caller knows it."""

    ask: Ask
    band: str
    since: float
    prefill: int


class GateMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.now = 100.0
        self.classes = BUILT_IN_CLASSES
        self.queue_limit = None
        self.rate, self.tokens, self.filled_at = None, 0.0, self.now
        self.gate = Gate(Bands(self.classes), Limit(3, ceiling=12))
        self.permits: dict[Permit, Known] = {}
        self.waiting: dict[Waiting, Known] = {}
        self.counted = {"asked": 0, "admitted": 0, "returned": 0, "left": 0, "shed": 0}

    # The rules, in their plainest form.

    @property
    def names(self):
        return [one.name for one in self.classes]

    def class_of(self, band):
        return next(one for one in self.classes if one.name == band)

    def in_flight(self, band):
        return sum(known.ask.requests for known in self.permits.values() if known.band == band)

    @property
    def used(self):
        return sum(known.ask.requests for known in self.permits.values())

    @property
    def backlog(self):
        return sum(known.prefill for known in self.permits.values())

    def reserves(self):
        left, reserves = self.gate.limit.value - 1, {}
        for one in self.classes:
            reserves[one.name] = min(left, ceil(one.reserved_percent * self.gate.limit.value / 100))
            left -= reserves[one.name]
        return reserves

    @property
    def burst(self):
        return max(1.0, 2 * (self.rate or 0.0))

    def spend(self, now, requests=0):
        """Fill the bucket up to now and take from it."""
        if self.rate is not None:
            self.tokens = min(self.burst, self.tokens + (now - self.filled_at) * self.rate) - requests
        self.filled_at = now

    def paced(self, ask):
        """Return whether R has no token for a request yet."""
        if self.rate is None:
            return False
        self.spend(self.now)
        return self.tokens < min(ask.requests, self.burst) - 1e-5

    def hindrance(self, ask, band):
        """Return what is in the way of a request if nobody waits: "prompts", "limit", "ceiling", "rate" or nothing."""
        return self.lack(ask, band) or ("rate" if self.paced(ask) else "")

    def lack(self, ask, band):
        """Return what there is no room for."""
        bound = self.gate.prefill_limit
        if bound is not None and self.backlog and self.backlog + ask.prefill_tokens > bound:
            return "prompts"
        if not self.used:
            return ""
        limit, reserves = self.gate.limit.value, self.reserves()
        above, below = self.names[: self.names.index(band)], self.names[self.names.index(band) + 1 :]
        kept = sum(max(0, reserves[one] - self.in_flight(one)) for one in above)
        if self.used + ask.requests + kept > limit:
            return "limit"
        if self.in_reserve(ask, band):
            return ""
        apart = sum(min(self.in_flight(one), reserves[one]) for one in below)
        ceiling = ceil(self.class_of(band).ceiling_percent * limit / 100)
        return "ceiling" if self.used - apart + ask.requests > ceiling else ""

    def in_reserve(self, ask, band):
        return self.in_flight(band) + ask.requests <= self.reserves()[band]

    def waits_in(self, bands):
        return [known for known in self.waiting.values() if known.band in bands]

    def enter(self, permit, known):
        """Take note that a request goes to the engine, which must be right at this moment."""
        assert not self.hindrance(known.ask, known.band)
        for higher in self.names[: self.names.index(known.band)]:
            others = self.waits_in([higher])
            if others:
                assert self.in_reserve(known.ask, known.band)
                assert any(self.hindrance(one.ask, higher) in {"ceiling", ""} for one in others)
        self.spend(self.now, known.ask.requests)
        self.permits[permit] = known
        self.counted["admitted"] += known.ask.requests

    def collect(self):
        events = self.gate.advance(self.now)
        for event in events:
            known = self.waiting.pop(event.waiting)
            assert event.waited_seconds == self.now - known.since
            if isinstance(event, Granted):
                assert self.now < event.waiting.deadline
                self.enter(event.permit, known)
                continue
            self.counted["shed"] += known.ask.requests
            if event.shed is Shed.QUEUE_TIMEOUT:
                assert self.now >= event.waiting.deadline
            elif event.shed is Shed.LOW_PRIORITY:
                assert self.class_of(known.band).sheddable
            else:
                assert event.shed is Shed.QUEUE_FULL
        return events

    # What may happen.

    @rule(
        band=st.sampled_from(["interactive", NORMAL, "batch", "other", "unknown"]),
        tenant=st.sampled_from("abcd"),
        weight=st.sampled_from([0.5, 1, 3]),
        requests=st.sampled_from([1, 1, 1, 2, 5]),
        prefill=st.integers(0, 60),
        cost=st.floats(0, 1000),
        budget=st.sampled_from([0.0, 1.0, 5.0, 30.0, 300.0]),
    )
    def ask(self, band, tenant, weight, requests, prefill, cost, budget):
        ask = Ask(
            band=band,
            tenant=tenant,
            weight=weight,
            requests=requests,
            prefill_tokens=prefill,
            cost=cost,
            budget_seconds=budget,
        )
        known = Known(ask, band if band in self.names else NORMAL, self.now, prefill)
        self.counted["asked"] += requests
        places = 10 * self.gate.limit.value if self.queue_limit is None else self.queue_limit
        depth = self.gate.depth
        answer = self.gate.ask(ask, self.now)
        if isinstance(answer, Permit):
            assert not self.waits_in([known.band])
            self.enter(answer, known)
        elif isinstance(answer, Waiting):
            assert depth < places or self.gate.depth <= depth
            self.waiting[answer] = known
        else:
            self.counted["shed"] += requests
            assert answer in {Shed.QUEUE_FULL, Shed.WAIT_TOO_LONG}
            assert answer is not Shed.QUEUE_FULL or depth >= places or places == 0
            ahead = self.waits_in(self.names[: self.names.index(known.band) + 1])
            assert ahead or self.hindrance(ask, known.band)
        self.collect()

    @precondition(lambda self: self.permits)
    @rule(data=st.data(), outcome=st.sampled_from([*Outcome, None]))
    def give_back(self, data, outcome):
        permit = data.draw(st.sampled_from(list(self.permits)))
        known = self.permits.pop(permit)
        permit.cancel(self.now) if outcome is None else permit.finish(outcome, self.now)
        self.counted["returned"] += known.ask.requests
        self.collect()

    @precondition(lambda self: self.permits)
    @rule(data=st.data())
    def first_byte(self, data):
        permit = data.draw(st.sampled_from(list(self.permits)))
        permit.first_byte(self.now)
        self.permits[permit].prefill = 0
        self.collect()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data):
        waiting = data.draw(st.sampled_from(list(self.waiting)))
        waiting.leave(self.now)
        self.counted["left"] += self.waiting.pop(waiting).ask.requests
        self.collect()

    @rule(seconds=st.sampled_from([0.01, 0.5, 3.0, 20.0]))
    def wait(self, seconds):
        self.now += seconds
        self.collect()

    @rule(value=st.integers(1, 15))
    def move_the_limit(self, value):
        self.gate.limit.set(value, "test")
        self.collect()

    @rule(bound=st.none() | st.integers(1, 100))
    def bound_the_prompts(self, bound):
        self.gate.prefill_limit = bound
        self.collect()

    @rule(rate=st.sampled_from([None, None, 0.2, 2.0, 50.0]))
    def set_the_rate(self, rate):
        self.spend(self.now)
        self.gate.set_rate(rate, self.now)
        if self.rate is None:
            self.tokens = 1.0
        self.rate = rate
        self.tokens = min(self.tokens, self.burst)
        self.collect()

    @rule(classes=st.sampled_from(POLICIES), queue_limit=st.sampled_from([None, 0, 2, 8]))
    def change_the_policy(self, classes, queue_limit):
        before = (self.gate.in_flight, self.gate.depth, self.gate.prefill_backlog)
        self.classes, self.queue_limit = classes, queue_limit
        self.gate.configure(Bands(classes), queue_limit=queue_limit, shadow=False, now=self.now)
        assert (self.gate.in_flight, self.gate.depth, self.gate.prefill_backlog) == before
        for known in (*self.permits.values(), *self.waiting.values()):
            known.band = known.band if known.band in self.names else NORMAL
        self.collect()

    # What must hold after each of it.

    @invariant()
    def the_books_balance(self):
        books, gate = self.gate.books, self.gate
        assert books.drift == 0
        assert gate.in_flight == self.used
        assert all(permit.counts for permit in self.permits)
        assert all(gate.bands.names[permit.band] == known.band for permit, known in self.permits.items())
        assert gate.prefill_backlog == self.backlog
        assert gate.depth_by_band == {name: len(self.waits_in([name])) for name in self.names}
        assert gate.waiting_requests == sum(known.ask.requests for known in self.waiting.values())
        assert books.admitted == self.counted["admitted"]
        assert sum(books.finished.values()) + books.cancelled == self.counted["returned"]
        assert books.left == self.counted["left"]
        assert books.shed.total() == self.counted["shed"]
        assert books.asked == books.admitted + books.left + books.shed.total() + gate.waiting_requests

    @invariant()
    def nobody_waits_too_long(self):
        assert all(self.now < waiting.deadline for waiting in self.waiting)
        deadline = min((waiting.deadline for waiting in self.waiting), default=None)
        wake = self.gate.wake_at()
        assert wake == deadline or (self.rate is not None and deadline is not None and self.now < wake < deadline)

    @invariant()
    def nobody_waits_who_could_go(self):
        """The first of the highest band that waits cannot go, whoever that is; so not all of the band can."""
        bands = [self.waits_in([name]) for name in self.names if self.waits_in([name])]
        if not bands:
            return
        highest, *lower = bands
        assert any(self.hindrance(one.ask, one.band) for one in highest)
        if lower and all(self.only_held_by_its_ceiling(one) for one in highest):
            assert any(self.hindrance(one.ask, one.band) or not self.in_reserve(one.ask, one.band) for one in lower[0])

    @invariant()
    def r_holds_only_those_for_whom_there_is_room(self):
        if self.gate.held_by is HeldBy.RATE:
            assert any(self.hindrance(known.ask, known.band) == "rate" for known in self.waiting.values())

    def only_held_by_its_ceiling(self, known):
        """Return whether a request waits until fewer are in flight, but not until there are none."""
        ceiling = ceil(self.class_of(known.band).ceiling_percent * self.gate.limit.value / 100)
        return self.hindrance(known.ask, known.band) == "ceiling" and known.ask.requests <= ceiling

    def teardown(self):
        """When everything in flight ends again and again, everybody's turn or end comes."""
        while self.waiting:
            for permit, known in self.permits.items():
                permit.finish(Outcome.SUCCESS, self.now)
                self.counted["returned"] += known.ask.requests
            self.permits.clear()
            if not self.collect():
                assert self.rate is not None
                self.now = self.gate.wake_at()
                assert self.collect()
        for permit, known in self.permits.items():
            permit.cancel(self.now)
            self.counted["returned"] += known.ask.requests
        self.permits.clear()
        self.the_books_balance()
        assert (self.gate.in_flight, self.gate.depth, self.gate.prefill_backlog) == (0, 0, 0)


TestGate = GateMachine.TestCase
TestGate.settings = settings(max_examples=150, stateful_step_count=50, deadline=None, derandomize=True)
