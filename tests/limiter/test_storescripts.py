"""The store's scripts and the local meters are two writings of the same algorithms: same sequence, same answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from penstock.admission.account import METERS, Use, allowance_of
from penstock.admission.meter import TICKS_PER_SECOND, moment
from penstock.admission.question import Holding, Keys, Question, SharedCharge
from penstock.admission.quotaview import QuotaRefusal
from penstock.api.ratelimits import BUCKETS, QuotaAlgorithm, QuotaUnit, RateLimit
from penstock.limiter import storescripts

CLOCK = "local function clock() return tonumber(redis.call('GET', 'now')) end\n"
START = 1_790_000_000_000_000
"""Microseconds, as a store's clock shows them."""


def kept(text: bytes) -> bytes:
    """Let keys outlive a test that takes its time: they expire by the real clock."""
    assert b"GRACE_MILLISECONDS = 1000" in text
    return text.replace(b"GRACE_MILLISECONDS = 1000", b"GRACE_MILLISECONDS = 1000000")


class Store:
    """The store with a clock that a test moves."""

    def __init__(self, client: Redis) -> None:
        self.client = client
        self.decide = client.register_script(kept(storescripts.decide(CLOCK).text))
        self.settle = client.register_script(kept(storescripts.settle(CLOCK).text))
        self.now = START
        self.keys = Keys("uid")

    def reset(self) -> None:
        self.client.flushdb()
        self.at(START)

    def at(self, now: int) -> None:
        self.now = now
        self.client.set("now", now)

    def ask(self, quotas: list[RateLimit], cost: int) -> SharedCharge | QuotaRefusal:
        question = Question([Holding(quota, "h") for quota in quotas], Use(1, cost, 0), keys=self.keys)
        return question.answer(self.decide(question.keys, question.arguments))

    def correct(self, charge: SharedCharge, truth: int) -> None:
        settlement = charge.settlement(truth, 0)
        if settlement is not None:
            self.settle(settlement.keys, settlement.arguments)


@pytest.fixture(scope="module")
def client(redis_server) -> Iterator[Redis]:
    with Redis(port=redis_server.port) as client:
        yield client


@pytest.fixture
def store(client) -> Store:
    found = Store(client)
    found.reset()
    return found


def quota(algorithm: QuotaAlgorithm, limit: int, window: int = 10, burst: int | None = None, name: str = "q"):
    burst = burst if algorithm in BUCKETS else None
    return RateLimit(
        name=name, unit=QuotaUnit.TOKENS, algorithm=algorithm, limit=limit, window_seconds=window, burst=burst
    )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.one_of(st.integers(0, 3_000_000), st.integers(0, 10**9))),
        st.tuples(st.just("ask"), st.integers(0, 40)),
        st.tuples(st.just("end"), st.tuples(st.integers(0, 30), st.integers(0, 400))),
        st.tuples(st.just("limit"), st.integers(1, 60)),
    ),
    max_size=40,
)


@pytest.mark.parametrize("algorithm", QuotaAlgorithm, ids=str)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limit=st.integers(1, 60), window=st.integers(1, 90), burst=st.none() | st.integers(1, 80), steps=STEPS)
def test_the_script_answers_as_the_local_meter(store, algorithm, limit, window, burst, steps) -> None:
    store.reset()
    allowed = quota(algorithm, limit, window, burst)
    meter = METERS[algorithm](allowance_of(allowed), moment(store.now))
    open_charges: list[tuple[SharedCharge, int, int]] = []
    for what, value in steps:
        if what == "wait":
            store.at(store.now + value)
        elif what == "limit":
            allowed = quota(algorithm, value, window, burst)
        elif what == "ask":
            now = moment(store.now)
            if not open_charges and not store.client.exists(store.keys.of(Holding(allowed, "h"))):
                meter = METERS[algorithm](allowance_of(allowed), now)  # nothing is kept of what is as good as fresh
            elif meter.allowance != allowance_of(allowed):
                meter.reconfigure(allowance_of(allowed), now)  # a store hears of a change from the next question
            check = meter.check(value, now)
            found = store.ask([allowed], value)
            if isinstance(found, QuotaRefusal):
                assert found.wait_seconds == pytest.approx(check.wait_seconds, abs=2 / TICKS_PER_SECOND)
                assert check.wait_seconds > 0
            else:
                assert check.wait_seconds == 0
                assert found.delay_seconds == pytest.approx(check.delay_seconds, abs=2 / TICKS_PER_SECOND)
                meter.charge(value, now)
                open_charges.append((found, value, store.now))
            (view,) = found.view
            assert view.remaining == min(view.limit, meter.remaining(now))
            assert view.reset_seconds == pytest.approx(meter.reset_seconds(now), abs=2 / TICKS_PER_SECOND)
        elif open_charges:
            which, truth = value
            charge, cost, at = open_charges.pop(which % len(open_charges))
            store.correct(charge, truth)
            if truth > cost:
                meter.charge(truth - cost, moment(store.now))
            elif truth < cost:
                meter.refund(cost - truth, moment(store.now), charged_at=moment(at))


@pytest.mark.parametrize("algorithm", QuotaAlgorithm, ids=str)
def test_a_clock_that_is_set_back_gives_nothing_twice(store, algorithm) -> None:
    allowed = quota(algorithm, 10)
    assert isinstance(store.ask([allowed], 10), SharedCharge)
    store.at(START - 60_000_000)
    assert isinstance(store.ask([allowed], 1), QuotaRefusal)
    store.at(START + 21_000_000)
    assert isinstance(store.ask([allowed], 10), SharedCharge)


@pytest.mark.parametrize("algorithm", QuotaAlgorithm, ids=str)
def test_numbers_at_the_edge_of_what_can_be_configured_are_exact(store, algorithm) -> None:
    allowed = quota(algorithm, 10**12, 86_400, burst=10**12)
    meter = METERS[algorithm](allowance_of(allowed), moment(START))
    at = START
    for step, cost in enumerate([10**12 - 7, 3, 5, 10**11 + 1, 10**12] * 3):
        at += 12_345_678_901 + step
        store.at(at)
        check = meter.check(cost, moment(at))
        found = store.ask([allowed], cost)
        assert isinstance(found, SharedCharge) is (check.wait_seconds == 0)
        if isinstance(found, SharedCharge):
            meter.charge(cost, moment(at))
        assert found.view[0].remaining == meter.remaining(moment(at))


@pytest.mark.parametrize("algorithm", QuotaAlgorithm, ids=str)
@pytest.mark.parametrize("before", QuotaAlgorithm, ids=str)
def test_what_is_counted_stays_counted_when_the_algorithm_changes(store, before, algorithm) -> None:
    store.ask([quota(before, 10)], 7)
    found = store.ask([quota(algorithm, 10)], 0)
    assert found.view[0].remaining == 3


def test_all_quotas_are_checked_before_any_is_charged(store) -> None:
    wide, narrow = quota(QuotaAlgorithm.TOKEN_BUCKET, 100), quota(QuotaAlgorithm.FIXED_WINDOW, 10, name="narrow")
    refusal = store.ask([wide, narrow], 11)
    assert isinstance(refusal, QuotaRefusal)
    assert refusal.name == "narrow"
    assert store.ask([wide], 0).view[0].remaining == 100


def test_nothing_of_a_holder_can_be_read_in_the_store_and_every_key_expires(store) -> None:
    secret = "tenant-of-mine"
    question = Question([Holding(quota(QuotaAlgorithm.TOKEN_BUCKET, 9), secret)], Use(1, 2, 0), keys=store.keys)
    store.decide(question.keys, question.arguments)
    keys = [key for key in store.client.scan_iter() if key != b"now"]
    assert len(keys) == 1
    assert secret.encode() not in keys[0] + store.client.get(keys[0])
    assert len(keys[0]) < 80
    assert store.client.pttl(keys[0]) > 0


def test_a_late_settlement_brings_nothing_back_that_is_forgotten(store) -> None:
    allowed = quota(QuotaAlgorithm.FIXED_WINDOW, 10)
    charge = store.ask([allowed], 8)
    store.client.delete(*question_keys(store, allowed))
    store.correct(charge, 0)
    assert store.ask([allowed], 0).view[0].remaining == 10
    store.correct(charge, 12)
    assert store.ask([allowed], 0).view[0].remaining == 6


def question_keys(store, allowed) -> list[bytes]:
    return [store.keys.of(Holding(allowed, "h"))]
