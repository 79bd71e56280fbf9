"""Whatever happens to requests, each is somewhere, and what it holds is given back once: on a clock that is ours."""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from penstock.admission.permit import Outcome
from penstock.api.admission import AdmissionMode
from penstock.api.engine import EngineType
from penstock.api.policy import Policy
from penstock.engines.facts import RequestClass
from penstock.limiter.admission import Admission
from penstock.limiter.bodybudget import BodyBudget
from penstock.limiter.concurrency import Engine
from penstock.limiter.head import parse_request
from penstock.limiter.path import Route
from penstock.limiter.refusal import Dialect, Reason, Refused
from penstock.limiter.service import Request
from penstock.limiter.turn import Turn
from penstock.limiter.usage import UsageWatch
from penstock.limiter.visit import Visit
from penstock.limiter.wish import Kind

PATH = "/v1/completions"
ROUTE = Route(PATH, PATH.encode(), RequestClass.GENERATION, Dialect.OPENAI)
GONE = Refused(Reason.DRAINING, "It goes away.")
TENANTS = {"identifyBy": "ClientAddress", "trustedProxies": ["10.0.0.0/8"], "default": {}}
REQUESTS = {"name": "requests", "algorithm": "FixedWindow", "limit": 10**6, "windowSeconds": 86_400}


class Timer:
    def __init__(self, when: float, call: Callable[[], object]) -> None:
        self._when = when
        self.call: Callable[[], object] | None = call

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        self.call = None


class Clock:
    """As much of a loop as admission uses."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = itertools.count()

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[..., object], *args: object) -> Timer:
        timer = Timer(when, lambda: call(*args))
        heapq.heappush(self._timers, (when, next(self._count), timer))
        return timer

    def call_later(self, seconds: float, call: Callable[..., object], *args: object) -> Timer:
        return self.call_at(self.now + seconds, call, *args)

    def move(self, seconds: float) -> None:
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            self.now, _, timer = heapq.heappop(self._timers)
            if timer.call is not None:
                timer.call()
        self.now = end


class Client:
    """A connection that waits for one answer."""

    def __init__(self) -> None:
        self.turn: Turn | None = None
        self.refused: Refused | None = None

    def refuse(self, refused: Refused) -> None:
        assert self.refused is None
        self.refused = refused
        self.turn = None


class Replica:
    """Admission, with an engine that takes what comes."""

    def __init__(self, **policy: object) -> None:
        self.clock = Clock()
        self.admission = Admission(
            loop=self.clock, engine=Engine(EngineType.VLLM, 8), context_tokens=None, tenants_path=None
        )
        self.at_engine: dict[Visit, Client] = {}
        self.engine_is_there = True
        self.idle = 0
        self.admission.room.on_idle = self._on_idle
        self.configure(**policy)

    def configure(self, **admission: object) -> None:
        policy = {"tenants": TENANTS, "admission": admission}
        self.admission.configure(Policy.parse(json.dumps(policy))[0])

    def ask(self, *, prompt: str = "x", n: int = 1, priority: str = "normal", deadline_ms: int = 60_000) -> Client:
        body = json.dumps({"prompt": prompt, "n": n, "max_tokens": 10, "stream": True}).encode()
        head = parse_request(
            f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
            f"x-penstock-priority: {priority}\r\nx-penstock-deadline-ms: {deadline_ms}\r\n\r\n".encode()
        )
        request = Request(head, BodyBudget(10**6))
        request.feed(body, limit_bytes=10**6)
        client = Client()
        try:
            visit = self.admission.admit(request, ROUTE, self.admission.reception.identify(head, "10.0.0.1"))
        except Refused as refused:
            client.refuse(refused)
            return client
        if visit.permit is not None:
            self._go(client, request, visit)
        else:
            turn = Turn(cast("object", client), request, visit, go=self._go, left=self.admission.room.client_left)
            client.turn = request.job = turn
            self.admission.wait(turn)
        return client

    def end(self, visit: Visit, outcome: Outcome | None, *, served: bool, whole: bool) -> None:
        del self.at_engine[visit]
        watch = UsageWatch(Kind.COMPLETIONS, stream=True) if whole else None
        visit.end(outcome, served=served, whole=whole, watch=watch)

    def _go(self, client: Client, _request: Request, visit: Visit) -> None:
        client.turn = None
        assert visit not in self.at_engine
        self.at_engine[visit] = client
        if not self.engine_is_there:
            self.end(visit, Outcome.IGNORE, served=False, whole=False)

    def _on_idle(self) -> None:
        assert not self.at_engine
        assert not len(self.admission.room)
        self.idle += 1


POLICIES: list[dict[str, object]] = [
    {"concurrency": {"maximum": 1}, "queue": {"maxRequests": 2}, "rateLimits": [REQUESTS]},
    {"concurrency": {"maximum": 3}, "rateLimits": [REQUESTS], "retryBudgetPercent": 0},
    {"rateLimits": [REQUESTS, {"name": "pace", "algorithm": "LeakyBucket", "limit": 10, "windowSeconds": 10}]},
    {"concurrency": {"maximum": 2}, "rateLimits": [REQUESTS, {"name": "t", "unit": "Tokens", "limit": 40}]},
    {"concurrency": {"maximum": 1}, "rateLimits": [REQUESTS], "priorityClasses": [{"name": "normal"}]},
    {"concurrency": {"maximum": 1}, "mode": "Shadow", "rateLimits": [REQUESTS], "queue": {"maxRequests": 1}},
    {"mode": "Disabled", "rateLimits": [REQUESTS]},
]


class Machine(RuleBasedStateMachine):
    """Requests come and end in every way, under policies that change."""

    clients = Bundle("clients")

    @initialize(policy=st.sampled_from(POLICIES))
    def begin(self, policy: dict[str, object]) -> None:
        self.replica = Replica(**policy)
        self.kept = 0
        self.waiting: list[Client] = []

    @rule(
        target=clients,
        prompt=st.sampled_from(["a", "b", "c", "d" * 200]),
        n=st.integers(1, 4),
        priority=st.sampled_from(["interactive", "normal", "batch"]),
        deadline_ms=st.sampled_from([0, 500, 60_000]),
    )
    def ask(self, **request: object) -> Client:
        client = self.replica.ask(**request)
        self.waiting.append(client)
        return client

    @rule(client=clients)
    def first_byte(self, client: Client) -> None:
        for visit in self._visits(client):
            visit.first_byte()

    @rule(
        client=consumes(clients),
        outcome=st.sampled_from([None, *Outcome]),
        answered=st.booleans(),
        served=st.booleans(),
        whole=st.booleans(),
    )
    def leave_or_end(self, client: Client, *, outcome, answered: bool, served: bool, whole: bool) -> None:
        if client.turn is not None:
            client.turn.client_gone()
            client.turn = None
            return
        for visit in self._visits(client):
            if answered:
                visit.first_byte()
            if visit.reservation is not None and visit._answered:
                self.kept += 1
            self.replica.end(visit, outcome, served=served, whole=whole and served)

    @rule(seconds=st.sampled_from([0.1, 1.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.replica.clock.move(seconds)

    @rule(policy=st.sampled_from(POLICIES))
    def reload(self, policy: dict[str, object]) -> None:
        self.replica.configure(**policy)
        if self.replica.admission.mode is not AdmissionMode.ENFORCE:
            assert not len(self.replica.admission.room)

    @rule(target=clients, there=st.booleans())
    def engine_comes_or_goes(self, there: bool):
        self.replica.engine_is_there = there
        return multiple()

    @rule()
    def all_are_sent_away(self) -> None:
        at_engine = set(self.replica.at_engine)
        self.replica.admission.room.refuse_all(GONE)
        assert set(self.replica.at_engine) == at_engine

    @invariant()
    def every_permit_is_at_the_engine_or_back(self) -> None:
        books = self.replica.admission.gate.books
        assert books.in_flight == sum(visit.wish.sequences for visit in self.replica.at_engine)
        assert books.admitted == books.in_flight + books.cancelled + sum(books.finished.values())

    @invariant()
    def every_request_is_somewhere(self) -> None:
        self.waiting = [client for client in self.waiting if client.turn is not None]
        assert len(self.replica.admission.room) == len(self.waiting)
        assert self.replica.admission.room.delayed == sum(
            client.turn is not None and client.turn.visit.waiting is None for client in self.waiting
        )

    @invariant()
    def nobody_waits_longer_than_it_may(self) -> None:
        now = self.replica.clock.now
        assert all(client.turn is not None and client.turn.visit.deadline > now for client in self.waiting)

    @invariant()
    def every_charge_is_open_kept_or_back(self) -> None:
        view = self.replica.admission.charges.quotas.view("10.0.0.1", "10.0.0.1", self.replica.clock.now)
        counted = {one.name: one.limit - one.remaining for one in view}
        visits = [*self.replica.at_engine, *(client.turn.visit for client in self.waiting if client.turn is not None)]
        assert counted["requests"] == self.kept + sum(visit.reservation is not None for visit in visits)

    def teardown(self) -> None:
        for visit in list(self.replica.at_engine):
            self.replica.end(visit, None, served=True, whole=False)
        self.replica.clock.move(100)
        while self.replica.at_engine:
            self.replica.end(next(iter(self.replica.at_engine)), None, served=True, whole=False)
        assert self.replica.admission.gate.in_flight == len(self.replica.admission.room) == 0

    def _visits(self, client: Client) -> list[Visit]:
        return [visit for visit, one in self.replica.at_engine.items() if one is client]


class TestMachine(Machine.TestCase):
    settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


# ---- one by one


def test_all_that_wait_are_told_before_anybody_could_go() -> None:
    """The first waits for two places and leaves one that is enough for the second."""
    replica = Replica(concurrency={"maximum": 2})
    replica.ask()
    waiting = [replica.ask(n=2), replica.ask(prompt="y")]
    replica.admission.room.refuse_all(GONE)
    assert [client.refused for client in waiting] == [GONE, GONE]
    assert len(replica.at_engine) == replica.admission.gate.in_flight == 1


def test_who_loses_its_place_is_told_in_the_same_moment() -> None:
    replica = Replica(concurrency={"maximum": 1}, queue={"maxRequests": 1})
    replica.ask()
    low = replica.ask(priority="batch")
    replica.ask(priority="interactive")
    assert low.refused is not None
    assert low.refused.reason is Reason.SHED_LOW_PRIORITY


def test_it_is_idle_only_when_nobody_waits_and_nobody_is_at_the_engine() -> None:
    replica = Replica(concurrency={"maximum": 1})
    first = replica.ask()
    second = replica.ask(prompt="y")
    before = replica.idle
    replica.end(next(iter(replica.at_engine)), Outcome.SUCCESS, served=True, whole=True)
    assert (first.turn, second.turn, replica.idle) == (None, None, before)
    replica.end(next(iter(replica.at_engine)), Outcome.SUCCESS, served=True, whole=True)
    assert replica.idle == before + 1


def test_an_engine_that_refuses_all_never_nests_those_that_wait() -> None:
    """Each failure lets the next one go; a thousand of them are no deeper than one."""
    replica = Replica(concurrency={"maximum": 1}, queue={"maxRequests": 2000})
    replica.ask()
    for number in range(1000):
        replica.ask(prompt=f"p{number}")
    replica.engine_is_there = False
    replica.end(next(iter(replica.at_engine)), Outcome.DROPPED, served=False, whole=False)
    assert replica.admission.gate.in_flight == len(replica.admission.room) == 0


@pytest.mark.parametrize(("deadline_ms", "told_after"), [(2_000, 2.0), (60_000, 30.0)], ids=["its own", "of the class"])
def test_the_time_a_request_may_wait_is_kept_to_the_moment(deadline_ms: int, told_after: float) -> None:
    replica = Replica(concurrency={"maximum": 1})
    replica.ask()
    client = replica.ask(prompt="y", deadline_ms=deadline_ms)
    replica.clock.move(told_after - 0.001)
    assert client.refused is None
    replica.clock.move(0.002)
    assert client.refused is not None
    assert client.refused.reason is Reason.QUEUE_TIMEOUT


def test_the_time_held_by_a_pace_is_part_of_the_time_a_request_may_wait() -> None:
    pace = {"name": "pace", "algorithm": "LeakyBucket", "limit": 10, "windowSeconds": 10}
    replica = Replica(concurrency={"maximum": 1}, rateLimits=[pace])
    replica.ask()
    client = replica.ask(prompt="y", deadline_ms=3_000)
    replica.clock.move(2.999)
    assert client.refused is None
    replica.clock.move(0.002)
    assert client.refused is not None
    assert client.refused.reason is Reason.QUEUE_TIMEOUT


def test_who_was_sent_away_while_held_by_a_pace_is_not_asked_about_later() -> None:
    pace = {"name": "pace", "algorithm": "LeakyBucket", "limit": 10, "windowSeconds": 10}
    replica = Replica(rateLimits=[pace])
    replica.ask()
    client = replica.ask(prompt="y")
    replica.admission.room.refuse_all(GONE)
    replica.clock.move(10)
    assert client.refused is GONE
    assert len(replica.at_engine) == 1


def test_a_defect_that_one_request_meets_keeps_no_other_from_its_turn(caplog) -> None:
    replica = Replica(concurrency={"maximum": 2})
    for prompt in ("a", "b"):
        replica.ask(prompt=prompt)
    assert len(replica.at_engine) == 2
    broken, waits = replica.ask(prompt="c"), replica.ask(prompt="d")
    assert broken.turn is not None
    aborted = []
    broken.turn._go = lambda *_: 1 / 0
    broken.transport = SimpleNamespace(abort=lambda: aborted.append(broken))
    for visit in list(replica.at_engine):
        replica.end(visit, Outcome.SUCCESS, served=True, whole=True)
    assert aborted == [broken]
    assert list(replica.at_engine.values()) == [waits]
    assert replica.admission.gate.in_flight == 1
    assert "could not be told" in caplog.text


def test_the_first_byte_of_an_answer_gives_the_prompt_back() -> None:
    replica = Replica()
    replica.ask(prompt="x" * 360)
    assert replica.admission.gate.prefill_backlog == 100
    next(iter(replica.at_engine)).first_byte()
    assert replica.admission.gate.prefill_backlog == 0


@pytest.mark.parametrize(
    ("whole", "fault", "learned"),
    [(True, {}, True), (False, {}, False), (True, {"aborted": True}, False), (True, {"prompt_tokens": None}, False)],
    ids=["whole", "left", "given up", "not reported"],
)
def test_only_whole_answers_teach_what_requests_cost(whole: bool, fault: dict[str, object], learned: bool) -> None:
    replica = Replica()
    replica.ask(prompt="x" * 3600)
    visit = replica.at_engine and next(iter(replica.at_engine))
    visit.first_byte()
    watch = UsageWatch(Kind.COMPLETIONS, stream=True)
    for name, value in ({"prompt_tokens": 3000, "output_tokens": 5} | fault).items():
        setattr(watch, name, value)
    del replica.at_engine[visit]
    visit.end(Outcome.SUCCESS, served=True, whole=whole, watch=watch)
    replica.ask(prompt="x" * 3600)
    assert (next(iter(replica.at_engine)).estimate.prompt_tokens > 1000) is learned
