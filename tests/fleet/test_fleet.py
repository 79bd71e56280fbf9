"""The slow loop in virtual time: when it looks, when it pushes, and what it makes of sources that are away."""

import asyncio
import itertools
from dataclasses import replace

import pytest

from penstock.api.admission import AdmissionPolicy
from penstock.api.engine import EngineType
from penstock.api.push import PushResult
from penstock.api.status import SignalOrigin
from penstock.fleet.law import Rule
from penstock.fleet.loop import Fleet
from penstock.fleet.signals import Away, HeldBy, Replica, ReplicaSignals, Signal
from penstock.fleet.target import FleetTarget
from penstock.resources.objects import Key

pytestmark = pytest.mark.looptime
KEY = Key("team", "chat")


class Source:
    """Tells what it is set to."""

    def __init__(self, **values):
        self.values = values
        self.boot_id = "first"
        self.away = ""
        self.reads = 0
        self.delay_seconds = 0.0

    async def read(self, subject):
        self.reads += 1
        await asyncio.sleep(self.delay_seconds)
        if self.away:
            raise Away(self.away)
        signals = {name: Signal(value, 1.0) for name, value in self.values.items()}
        known = ReplicaSignals(held_by=HeldBy.NONE, boot_id=self.boot_id, **signals)
        return {one.name: known for one in subject.replicas if self.values}


class Pushes:
    def __init__(self):
        self.sent = []
        self.forgotten = []
        self.result = PushResult.APPLIED

    async def push(self, target, limits, *, ttl_seconds):
        self.sent.append((asyncio.get_running_loop().time(), target, limits, ttl_seconds))
        return self.result

    def forget(self, pod_uid):
        self.forgotten.append(pod_uid)


def target(*, policy="{}", ready=2, **adaptive):
    replicas = tuple(Replica(f"chat-{n}", f"uid-{n}", f"10.0.0.{n}", n < ready) for n in range(2))
    admission = AdmissionPolicy.model_validate({"adaptive": adaptive} if adaptive else {})
    return FleetTarget(uid="u", engine=EngineType.VLLM, admission=admission, policy=policy, replicas=replicas)


class World:
    def __init__(self, prometheus=None):
        self.direct = Source(waiting=0.0, admitted_per_second=5.0, limit=8.0)
        self.pushes = Pushes()
        self.told = []
        self.fleet = Fleet(
            direct=self.direct,
            prometheus=prometheus,
            pushes=self.pushes,
            interval_seconds=15.0,
            changed=self.told.append,
            spread=lambda low, high: (low + high) / 2,
        )

    @property
    def view(self):
        return self.fleet.view(KEY)


@pytest.fixture
async def world():
    made = World()
    yield made
    await made.fleet.close()


async def test_every_interval_there_is_a_round_and_every_second_a_push_to_each_replica(world):
    world.fleet.observe(KEY, target())
    await asyncio.sleep(152)
    assert world.direct.reads == 11
    assert [round(at / 15) for at, *_ in world.pushes.sent] == [0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10]
    _, to, limits, ttl = world.pushes.sent[0]
    assert (to.backend_uid, to.pod_uid, to.address, ttl) == ("u", "uid-0", "10.0.0.0", 60.0)
    assert (limits.rate_per_second, limits.share, limits.peers, limits.policy) == (None, 0.5, ("10.0.0.1",), "{}")


@pytest.mark.parametrize("news", [{"policy": '{"a": 1}'}, {"ready": 1}], ids=["policy", "ready set"])
async def test_what_is_new_is_pushed_within_a_second(world, news):
    world.fleet.observe(KEY, target())
    await asyncio.sleep(5)
    before = len(world.pushes.sent)
    world.fleet.observe(KEY, target(**news))
    await asyncio.sleep(1)
    fresh = world.pushes.sent[before:]
    assert len(fresh) == news.get("ready", 2)
    assert fresh[0][2].policy == news.get("policy", "{}")
    assert fresh[0][2].share == 1 / news.get("ready", 2)


@pytest.mark.parametrize("when", ["waiting", "reading"])
async def test_news_does_not_wait_for_a_round(world, when):
    world.fleet.observe(KEY, target())
    await asyncio.sleep(5)
    before = len(world.pushes.sent)
    if when == "reading":
        world.direct.delay_seconds = 5.0
        await asyncio.sleep(12)
        assert world.direct.reads == 2
    world.fleet.observe(KEY, target(policy='{"a": 1}'))
    await asyncio.sleep(1)
    assert [limits.policy for _, _, limits, _ in world.pushes.sent[before:]] == ['{"a": 1}'] * 2


async def test_the_first_replica_does_not_wait_for_the_next_round(world):
    world.fleet.observe(KEY, target(ready=0))
    await asyncio.sleep(3)
    world.fleet.observe(KEY, target(ready=1))
    await asyncio.sleep(1)
    assert [limits.share for _, _, limits, _ in world.pushes.sent] == [1.0]


async def test_once_closed_nothing_begins_any_more(world):
    world.fleet.observe(KEY, target())
    await world.fleet.close()
    others = asyncio.all_tasks()
    world.fleet.observe(KEY, target())
    world.fleet.observe_replicas(KEY, target().replicas)
    assert asyncio.all_tasks() == others
    assert world.view is None


async def test_what_is_not_new_makes_no_push_and_no_look_at_status(world):
    world.fleet.observe(KEY, target())
    await asyncio.sleep(2)
    sent = len(world.pushes.sent)
    for _ in range(10):
        world.fleet.observe(KEY, target())
    await asyncio.sleep(10)
    assert len(world.pushes.sent) == sent
    await asyncio.sleep(300)
    assert world.told == [KEY]


@pytest.mark.parametrize("spread", [0.0, 0.9, 1.1], ids=["by chance", "always early", "always late"])
async def test_a_push_is_renewed_well_before_its_time_is_over(spread):
    world = World()
    ups_and_downs = itertools.cycle((0.9, 1.1))
    world.fleet._spread = lambda low, high: high if low == 0 else spread or next(ups_and_downs)
    world.fleet.observe(KEY, target(ready=1))
    await asyncio.sleep(600)
    times = [at for at, *_ in world.pushes.sent]
    pauses = [later - at for at, later in itertools.pairwise(times)]
    assert min(pauses) >= 1.5 * 15
    assert max(pauses) <= 2.2 * 15 + 1
    await world.fleet.close()


async def test_rounds_of_several_backends_are_done_together(world):
    ups_and_downs = itertools.cycle((0.93, 1.0, 1.07))
    world.fleet._spread = lambda low, high: high if low == 0 else next(ups_and_downs)
    for n in range(30):
        world.fleet.observe(Key("team", f"chat-{n}"), target(ready=1))
    await asyncio.sleep(300)
    times = [round(at, 3) for at, *_ in world.pushes.sent]
    assert len(times) > 300
    assert {at % 1 for at in times} == {0.0}


async def test_a_limiter_that_has_begun_anew_or_refused_or_is_silent_is_pushed_to_in_each_round(world):
    world.fleet.observe(KEY, target(ready=1))
    await asyncio.sleep(2)
    world.direct.boot_id = "second"
    await asyncio.sleep(15)
    assert [to.boot_id for _, to, *_ in world.pushes.sent] == ["first", "second"]
    world.pushes.result = PushResult.LATE
    await asyncio.sleep(45)
    assert len(world.pushes.sent) == 4
    assert not world.view.reaches_limiters
    world.pushes.result = PushResult.APPLIED
    await asyncio.sleep(15)
    assert world.view.reaches_limiters
    world.direct.values.clear()
    await asyncio.sleep(30)
    assert len(world.pushes.sent) == 7


async def test_an_invalid_spec_leaves_the_last_one_in_force_for_the_pods_of_now(world):
    world.fleet.observe_replicas(KEY, target().replicas)
    assert world.view is None
    world.fleet.observe(KEY, target(mode="Fixed"))
    await asyncio.sleep(2)
    world.fleet.observe_replicas(KEY, target(ready=1).replicas)
    await asyncio.sleep(2)
    assert world.pushes.sent[-1][2].share == 1.0
    assert world.pushes.sent[-1][2].policy == "{}"


async def test_rounds_of_backends_that_are_gone_are_counted_on(world):
    world.fleet.observe(KEY, target())
    await asyncio.sleep(32)
    world.fleet.forget(KEY)
    assert world.fleet.rounds == {"tracking": 3}


async def test_a_backend_that_lets_all_pass_is_bound_by_no_rate(world):
    one = target()
    world.fleet.observe(KEY, replace(one, admission=AdmissionPolicy(mode="Disabled")))
    world.direct.values["waiting"] = 10.0
    await asyncio.sleep(100)
    assert (world.view.rule, world.view.bound_per_second) == (Rule.FIXED, None)


async def test_without_replicas_there_is_nothing_to_say_and_nothing_goes_stale(world):
    world.fleet.observe(KEY, target(ready=0))
    await asyncio.sleep(300)
    assert (world.view.rule, world.view.ready, world.view.limit_per_replica) == (Rule.IDLE, 0, None)
    assert (world.pushes.sent, world.told) == ([], [KEY])


async def test_pressure_binds_the_rate_of_each_replica_and_calm_frees_it(world):
    world.fleet.observe(KEY, target())
    await asyncio.sleep(2)
    before = world.view.rate.per_second
    world.direct.values["waiting"] = 10.0
    await asyncio.sleep(32)
    assert (world.view.rule, world.view.pressure.signal) == (Rule.SEVERE, "waiting")
    assert world.view.rate.per_second <= 0.9 * before
    limits = world.pushes.sent[-1][2]
    assert limits.rate_per_second == pytest.approx(world.view.rate.per_second / 2)
    assert (limits.decision.rule, limits.decision.value) == ("severe", 10.0)
    assert len(world.told) == 2
    world.direct.values["waiting"] = 0.0
    await asyncio.sleep(600)
    assert not world.view.rate.binds
    assert world.pushes.sent[-1][2].rate_per_second is None


async def test_fixed_limits_are_pushed_without_a_rate(world):
    world.fleet.observe(KEY, target(mode="Fixed"))
    world.direct.values["waiting"] = 10.0
    await asyncio.sleep(100)
    assert world.view.rule is Rule.FIXED
    assert all(limits.rate_per_second is None for _, _, limits, _ in world.pushes.sent)


async def test_a_prometheus_that_is_away_is_stood_in_for_and_said():
    prometheus = Source(waiting=1.0)
    world = World(prometheus)
    world.fleet.observe(KEY, target())
    await asyncio.sleep(2)
    assert (world.view.origin, world.view.prometheus) == (SignalOrigin.PROMETHEUS, "")
    prometheus.away = "it does not answer"
    await asyncio.sleep(15)
    assert (world.view.origin, world.view.prometheus, world.view.answers) == (
        SignalOrigin.DIRECT,
        "it does not answer",
        False,
    )
    world.direct.values.clear()
    await asyncio.sleep(15)
    assert world.view.origin is SignalOrigin.STALE
    await world.fleet.close()


async def test_a_defect_in_one_round_does_not_end_the_others(world, caplog):
    world.fleet.observe(KEY, target())
    await asyncio.sleep(2)
    read, world.direct.read = world.direct.read, None
    await asyncio.sleep(15)
    assert "please report this" in caplog.text
    world.direct.read = read
    before = world.direct.reads
    await asyncio.sleep(15)
    assert world.direct.reads == before + 1


async def test_a_backend_that_is_gone_gets_nothing_any_more(world):
    world.fleet.observe(KEY, target())
    await asyncio.sleep(2)
    world.fleet.forget(KEY)
    before = len(world.pushes.sent)
    await asyncio.sleep(60)
    assert (len(world.pushes.sent), world.view, set(world.pushes.forgotten)) == (before, None, {"uid-0", "uid-1"})
