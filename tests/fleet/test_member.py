"""One backend's rounds: what a new leader takes over, which signals count, and what is pushed to whom."""

import asyncio

import pytest

from penstock.api.admission import AdmissionPolicy
from penstock.api.engine import EngineType
from penstock.api.push import POLICY_LIMIT_CHARACTERS, PushResult
from penstock.api.status import SignalOrigin
from penstock.fleet import law
from penstock.fleet.law import Rule
from penstock.fleet.member import Member
from penstock.fleet.signals import NOTHING, HeldBy, Replica, ReplicaSignals, Signal
from penstock.fleet.target import FleetTarget

pytestmark = pytest.mark.looptime


def replica(number):
    return Replica(f"chat-{number}", f"uid-{number}", f"10.0.0.{number}", ready=True)


def target(*, policy="{}", ready=2):
    return FleetTarget(
        uid="u",
        engine=EngineType.VLLM,
        admission=AdmissionPolicy(),
        policy=policy,
        replicas=tuple(map(replica, range(ready))),
    )


def limiter(**changes):
    values = {"boot_id": "b", "held_by": HeldBy.NONE, "admitted_per_second": Signal(2.0, 0.0)}
    return ReplicaSignals(**values | changes)


class Scene:
    """A member, and what its sources tell of each replica."""

    def __init__(self, **fields):
        self.near = limiter(waiting=Signal(0.0, 0.5))
        self.far = None
        self.sent = []
        self.during_push = lambda: None
        self.member = Member(
            "chat", "team", target(**fields), direct=self, prometheus=Far(self), pushes=self, ttl_seconds=60.0
        )

    async def read(self, subject):
        return {} if self.near is None else {one.name: self.near for one in subject.replicas}

    async def push(self, to, limits, *, ttl_seconds):
        self.during_push()
        self.sent.append((to.pod_uid, limits))
        return PushResult.APPLIED

    def forget(self, pod_uid):
        pass

    async def rounds(self, count=1):
        rules = []
        for _ in range(count):
            await self.member.round()
            rules.append(self.member.view.rule)
            await asyncio.sleep(15)
        return rules


class Far:
    """A Prometheus; without a sample there is none."""

    def __init__(self, scene):
        self.scene = scene

    async def read(self, subject):
        return {} if self.scene.far is None else {one.name: self.scene.far for one in subject.replicas}


@pytest.mark.parametrize("silent_rounds", [0, 1, 5])
async def test_what_limiters_hold_is_taken_over_when_the_first_has_answered(silent_rounds):
    scene = Scene()
    scene.near = None
    scene.far = ReplicaSignals(waiting=Signal(10.0, 0.5))
    await scene.rounds(silent_rounds)
    await scene.member.push()
    assert scene.sent == [], "nobody knows yet what is in force"
    scene.near = limiter(pushed_rate=3.0, waiting=Signal(1.6, 0.0))
    scene.far = None
    assert await scene.rounds() == [Rule.HOLD]
    assert scene.member.view.bound_per_second == 6.0
    assert {limits.rate_per_second for _, limits in scene.sent} == {3.0}


async def test_before_a_limiter_has_answered_nothing_is_decided():
    scene = Scene()
    scene.near = None
    scene.far = ReplicaSignals(waiting=Signal(10.0, 0.5))
    assert set(await scene.rounds(5)) <= {Rule.MISSING, Rule.FROZEN}
    scene.near = limiter()
    assert await scene.rounds() == [Rule.TRACKING]
    assert [limits.rate_per_second for _, limits in scene.sent] == [None, None]


async def test_what_is_known_once_is_not_taken_over_again():
    scene = Scene()
    await scene.rounds()
    scene.near = limiter(pushed_rate=3.0, waiting=Signal(1.6, 0.0))
    await scene.rounds()
    assert scene.member.view.bound_per_second is None


@pytest.mark.parametrize(("more", "travels"), [(0, True), (1, False)], ids=["as long as may be", "longer"])
async def test_a_policy_that_is_too_long_is_left_to_the_configmap(more, travels):
    policy = "x" * (POLICY_LIMIT_CHARACTERS + more)
    scene = Scene(policy=policy)
    await scene.rounds()
    assert [limits.policy for _, limits in scene.sent] == [policy if travels else None] * 2


@pytest.mark.parametrize(
    ("far_age", "near_age", "counts", "origin"),
    [
        (59.0, 0.5, "near", SignalOrigin.PROMETHEUS),
        (61.0, 0.5, "near", SignalOrigin.DIRECT),
        (0.5, 59.0, "far", SignalOrigin.PROMETHEUS),
        (1.0, 1.0, "far", SignalOrigin.PROMETHEUS),
    ],
    ids=["near is fresher", "far is too old", "far is fresher", "as fresh"],
)
async def test_of_what_both_sources_know_the_fresher_counts(far_age, near_age, counts, origin):
    scene = Scene()
    scene.far = ReplicaSignals(waiting=Signal(10.0, far_age))
    scene.near = limiter(waiting=Signal(1.0, near_age))
    await scene.rounds()
    assert scene.member.view.pressure.value == {"far": 10.0, "near": 1.0}[counts]
    assert scene.member.view.origin is origin


def test_each_signal_is_taken_from_who_knows_it_better():
    one = ReplicaSignals(waiting=Signal(1.0, 5.0), running=Signal(2.0, 1.0), boot_id="a")
    other = ReplicaSignals(waiting=Signal(3.0, 4.0), running=Signal(4.0, 2.0), limit=Signal(8.0, 0.0), boot_id="b")
    assert one.or_fresher(other) == ReplicaSignals(
        waiting=Signal(3.0, 4.0), running=Signal(2.0, 1.0), limit=Signal(8.0, 0.0), boot_id="a"
    )
    assert (one.or_fresher(NOTHING), NOTHING.or_fresher(one)) == (one, one)


async def test_one_old_sample_makes_one_cut():
    scene = Scene()
    await scene.rounds()
    rules = []
    for age in (1.0, 16.0, 31.0, 46.0):
        scene.near = limiter(waiting=Signal(10.0, age))
        rules += await scene.rounds()
    assert rules == [Rule.TRACKING, Rule.SEVERE, Rule.HOLD, Rule.HOLD]


async def test_replicas_that_come_get_as_much_as_those_that_are_there():
    scene = Scene()
    scene.near = limiter(pushed_rate=3.0, waiting=Signal(1.6, 0.0))
    await scene.rounds()
    scene.member.target = target(ready=4)
    scene.sent.clear()
    await scene.member.push()
    await scene.rounds()
    assert {limits.rate_per_second for _, limits in scene.sent} == {3.0}
    assert {uid for uid, _ in scene.sent} == {f"uid-{number}" for number in range(4)}
    assert scene.member.view.bound_per_second == 12.0


async def test_a_pod_that_goes_during_a_push_is_not_remembered():
    scene = Scene()

    def goes():
        scene.member.target = target(ready=1)
        scene.member.forget_pods({"uid-1"})

    scene.during_push = goes
    await scene.rounds()
    assert set(scene.member._sent) == {"uid-0"}


async def test_a_leader_that_has_taken_over_lets_the_rate_go_where_it_was():
    scene = Scene()
    scene.near = limiter(pushed_rate=3.0, waiting=Signal(0.0, 0.0))
    rules = await scene.rounds(6)
    assert (rules[-2], rules[-1]) == (Rule.RECOVERED, Rule.TRACKING)
    assert law.GROWTH**4 < law.HEADROOM <= law.GROWTH**5


@pytest.mark.parametrize("source", ["Prometheus", "limiters", "both"])
@pytest.mark.parametrize("scraped_at", [0.0, 0.4, 0.9])
async def test_short_rounds_and_scrapes_lower_the_rate_within_two_rounds_and_again_after_a_return(source, scraped_at):
    """Rounds of 1.5 s, a scrape each second; what limiters know is half a second old."""
    scene = Scene()
    loop, waiting = asyncio.get_running_loop(), 0.0

    async def rounds(count):
        for _ in range(count):
            sample = Signal(waiting, (loop.time() - scraped_at) % 1.0)
            scene.far = None if source == "limiters" else ReplicaSignals(waiting=sample)
            scene.near = limiter(waiting=None if source == "Prometheus" else Signal(waiting, 0.5))
            await scene.member.round()
            await asyncio.sleep(1.5)

    await rounds(3)
    for _ in range(2):
        before, waiting = scene.member.view.rate.per_second, 10.0
        await rounds(2)
        assert scene.member.view.rate.per_second <= 0.9 * before
        waiting = 0.0
        await rounds(20)
        assert not scene.member.view.rate.binds


async def test_while_the_rate_does_not_bind_no_other_rule_is_named_each_round():
    scene = Scene()
    rules, named = [], set()
    for near in (scene.near, None, scene.near):
        scene.near = near
        rules += await scene.rounds()
        named.add(scene.member.view.limited_by)
    assert rules == [Rule.TRACKING, Rule.MISSING, Rule.TRACKING]
    assert named == {Rule.TRACKING}
