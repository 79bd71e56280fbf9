"""The slow loop and real limiters, on loopback: what it decides is in force where requests come in."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
import time
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from penstock.api.admission import AdmissionPolicy
from penstock.api.engine import EngineType
from penstock.fleet.direct import DirectSource
from penstock.fleet.law import Rule
from penstock.fleet.loop import Fleet
from penstock.fleet.push import Pusher
from penstock.fleet.signals import Replica
from penstock.fleet.signing import SigningKey
from penstock.fleet.target import FleetTarget
from penstock.resources.objects import Key

KEY = Key("team", "chat")
SIGNING_KEY = SigningKey(b"k" * 32)
INTERVAL_SECONDS = 0.25


class OnPort:
    """Pushes to a port of the test's own."""

    def __init__(self, pusher: Pusher, port: int) -> None:
        self._pusher = pusher
        self._port = port
        self.forget = pusher.forget

    async def push(self, target, limits, *, ttl_seconds):
        return await self._pusher.push(dataclasses.replace(target, port=self._port), limits, ttl_seconds=ttl_seconds)


def policy(**values) -> str:
    return json.dumps({"trustedKeys": [SIGNING_KEY.public], **values})


def target(*, text=None, replicas=1, **targets) -> FleetTarget:
    """One replica that is there, and further ones that only the ready set knows."""
    named = (Replica("chat-0", "pod-0", "127.0.0.1", ready=True),)
    others = tuple(Replica(f"chat-{n}", f"pod-{n}", f"127.0.0.{n + 1}", ready=True) for n in range(1, replicas))
    admission = AdmissionPolicy.model_validate({"adaptive": {"targets": targets}})
    return FleetTarget(
        uid="uid", engine=EngineType.VLLM, admission=admission, policy=text or policy(), replicas=named + others
    )


@asynccontextmanager
async def fleet_of(rig, *, interval_seconds=INTERVAL_SECONDS):
    port = rig.settings.admin_port
    async with aiohttp.ClientSession() as session:
        pusher = Pusher(SIGNING_KEY, session, may_push=lambda: True, epoch=lambda: 1)
        fleet = Fleet(
            direct=DirectSource(session, port=port),
            prometheus=None,
            pushes=OnPort(pusher, port),
            interval_seconds=interval_seconds,
            changed=lambda _key: None,
        )
        try:
            yield fleet
        finally:
            await fleet.close()


@pytest.fixture
def trusting(settings):
    """Settings of a replica that believes the operator's key."""
    Path(settings.policy_path).write_text(policy())
    return settings.model_copy(update={"pod_uid": "pod-0"})


@pytest.fixture
async def replica(trusting, make_rig):
    async with make_rig(trusting) as rig:
        await rig.ready()
        yield rig


def show(rig, *, waiting: int) -> None:
    text = b"vllm:num_requests_waiting %d\n" % waiting
    rig.engine.metrics = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)


def rate(rig) -> float | None:
    return rig.limiter.admission.gate.rate_per_second


async def test_a_policy_edit_and_another_ready_set_are_in_force_within_a_second(replica) -> None:
    async with fleet_of(replica, interval_seconds=60.0) as fleet:
        fleet.observe(KEY, target())
        await replica.until(lambda: fleet.view(KEY) is not None)
        assert replica.limiter.state()["policy"]["source"] == "push"
        began = time.monotonic()
        fleet.observe(KEY, target(text=policy(maximumBodyMebibytes=9)))
        await replica.until(lambda: replica.limiter.relay.body_limit_bytes == 9 << 20)
        assert time.monotonic() - began < 1.0
        began = time.monotonic()
        fleet.observe(KEY, target(text=policy(maximumBodyMebibytes=9), replicas=2))
        await replica.until(lambda: replica.limiter.admission.charges.quotas.share == 0.5)
        assert time.monotonic() - began < 1.0
        assert replica.limiter.state()["pushed"]["peers"] == 1


async def test_requests_that_wait_inside_the_engine_lower_the_rate_and_calm_lifts_it(replica) -> None:
    gate = replica.limiter.admission.gate
    async with fleet_of(replica) as fleet:
        show(replica, waiting=0)
        fleet.observe(KEY, target())
        await replica.until(lambda: fleet.view(KEY) is not None and fleet.view(KEY).pressure is not None)
        assert rate(replica) is None
        show(replica, waiting=10)
        await replica.until(lambda: rate(replica) is not None)
        await replica.until(lambda: fleet.view(KEY).rate.binds)  # it is told after the push
        pushed = replica.limiter.state()["pushed"]
        assert (pushed["rule"], pushed["signal"]) == ("severe", "waiting")
        assert pushed["value"] == 10
        # It holds whoever comes, and nobody is refused.
        gate.set_rate(0.5, replica.limiter.admission.now())
        await replica.post()
        held = await replica.queue()
        assert replica.limiter.signals.state(replica.limiter.admission.now())["heldBy"] == "rate"
        show(replica, waiting=0)
        await replica.until(lambda: rate(replica) is None)
        assert (await held.reply()).status == 200
        assert fleet.rounds[Rule.RECOVERED] >= 1


async def test_a_changed_target_moves_the_point_at_which_the_rate_binds(replica) -> None:
    async with fleet_of(replica) as fleet:
        show(replica, waiting=10)
        fleet.observe(KEY, target(waitingRequests=100))
        await replica.until(lambda: sum(fleet.rounds.values()) > 6)
        assert rate(replica) is None
        fleet.observe(KEY, target(waitingRequests=2))
        await replica.until(lambda: rate(replica) is not None)


async def test_an_operator_that_takes_over_goes_on_with_the_rate_that_binds(replica) -> None:
    show(replica, waiting=10)
    async with fleet_of(replica) as fleet:
        fleet.observe(KEY, target())
        await replica.until(lambda: rate(replica) is not None)
    show(replica, waiting=2)
    before = rate(replica)
    async with fleet_of(replica) as fleet:
        fleet.observe(KEY, target())
        await replica.until(lambda: fleet.view(KEY) is not None)
        assert fleet.view(KEY).rate.per_second == pytest.approx(before, rel=0.5)
        assert rate(replica) is not None


async def test_a_limiter_that_begins_anew_has_what_is_in_force_after_a_round(trusting, make_rig) -> None:
    async with make_rig(trusting) as first, fleet_of(first) as fleet:
        fleet.observe(KEY, target(replicas=2))
        await first.until(lambda: first.limiter.admission.charges.quotas.share == 0.5)
        first.limiter.stopped.set()
        await asyncio.sleep(0.2)
        with socket.create_server(("127.0.0.1", 0)) as free:  # the first one's engine still has its port
            engine_port = free.getsockname()[1]
        again = trusting.model_copy(update={"engine_port": engine_port})
        async with make_rig(again) as second:
            await second.until(lambda: second.limiter.admission.charges.quotas.share == 0.5)
