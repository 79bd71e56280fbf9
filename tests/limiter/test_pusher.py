"""The operator's pusher against real limiters on loopback."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import aiohttp
import pytest

from penstock.api.push import Decision, PushedLimits, PushResult
from penstock.fleet.push import Pusher, Target
from penstock.fleet.signing import SigningKey
from penstock.limiter.config import POLICY_INTERVAL_SECONDS

KEY = SigningKey(b"k" * 32)


def policy(**values) -> str:
    return json.dumps({"trustedKeys": [KEY.public], **values})


@pytest.fixture
def trusting(settings):
    Path(settings.policy_path).write_text(policy(maximumBodyMebibytes=1))
    return settings.model_copy(update={"pod_uid": "pod-1"})


@pytest.fixture
async def replica(trusting, make_rig):
    async with make_rig(trusting) as rig:
        yield rig


class Operator:
    """One that leads, or has led."""

    def __init__(self, session: aiohttp.ClientSession, *, epoch: int) -> None:
        self.leads = True
        self.epoch = epoch
        self.pusher = Pusher(KEY, session, may_push=lambda: self.leads, epoch=lambda: self.epoch)

    async def push(self, rig, *, share: float = 0.5, **limits) -> PushResult:
        target = Target(backend_uid="uid", pod_uid="pod-1", address="127.0.0.1", port=rig.settings.admin_port)
        made = PushedLimits(share=share, decision=Decision(rule="test"), **limits)
        return await self.pusher.push(target, made, ttl_seconds=60)


@pytest.fixture
async def elect():
    async with aiohttp.ClientSession() as session:
        yield lambda epoch: Operator(session, epoch=epoch)


def share(rig) -> float:
    return rig.limiter.admission.charges.quotas.share


def counts(rig) -> dict[str, int]:
    return {str(result): count for result, count in rig.limiter.pushes.results.items() if count}


async def test_a_policy_edit_is_in_force_within_a_second(replica, elect) -> None:
    assert POLICY_INTERVAL_SECONDS > 1  # the file would not be that fast, even without a kubelet
    operator = elect(1)
    began = time.monotonic()
    assert await operator.push(replica, policy=policy(maximumBodyMebibytes=9)) is PushResult.APPLIED
    assert replica.limiter.relay.body_limit_bytes == 9 << 20
    assert time.monotonic() - began < 1.0


async def test_the_boot_id_is_learned_once_and_again_after_a_restart(trusting, make_rig, elect) -> None:
    operator = elect(1)
    async with make_rig(trusting) as rig:
        for _ in range(3):
            assert await operator.push(rig) is PushResult.APPLIED
        assert counts(rig) == {"wrong_boot": 1, "applied": 3}
    assert await operator.push(rig) is PushResult.UNREACHABLE
    async with make_rig(trusting) as rig:
        assert await operator.push(rig) is PushResult.APPLIED
        assert counts(rig) == {"wrong_boot": 1, "applied": 1}


async def test_of_two_leaders_the_later_one_counts_and_the_paused_one_changes_nothing(replica, elect) -> None:
    paused, leader = elect(1), elect(2)
    await paused.push(replica, share=0.1)
    assert await leader.push(replica, share=0.9) is PushResult.APPLIED
    # It wakes up and does not know yet; its fence does.
    paused.leads = False
    assert await paused.push(replica, share=0.1) is PushResult.NOT_LEADING
    assert share(replica) == 0.9
    assert paused.pusher.raised == 0


async def test_what_a_paused_leader_had_on_its_way_is_refused_and_teaches_it_nothing(replica, elect) -> None:
    paused, leader = elect(1), elect(2)
    await paused.push(replica, share=0.1)
    await leader.push(replica, share=0.9)
    asked = 0

    def until_it_is_sent() -> bool:
        nonlocal asked
        asked += 1
        return asked <= 2  # before, and at the socket; what follows is the pause

    paused.pusher._may_push = until_it_is_sent
    assert await paused.push(replica, share=0.1) is PushResult.OLD_VERSION
    assert (share(replica), paused.pusher.raised) == (0.9, 0)
    assert replica.limiter.pushes.results[PushResult.OLD_VERSION] == 1


async def test_the_leader_of_a_recreated_lease_goes_above_what_was_seen(replica, elect, caplog) -> None:
    former, leader = elect(7), elect(0)
    for _ in range(3):
        await former.push(replica, share=0.1)
    former.leads = False
    assert await leader.push(replica, share=0.9) is PushResult.APPLIED
    assert share(replica) == 0.9
    assert replica.limiter.pushes.acceptance.version.epoch == 8
    assert leader.pusher.raised == 1
    assert "seen version (7, 4)" in caplog.text
    # The next one is above it as well, as soon as it is told.
    leader.leads = False
    assert await elect(1).push(replica, share=0.3) is PushResult.APPLIED
    assert replica.limiter.pushes.acceptance.version.epoch == 9


async def test_a_lease_recreated_under_its_leader_changes_nothing(replica, elect) -> None:
    leader = elect(5)
    await leader.push(replica)
    leader.epoch = 0
    assert await leader.push(replica) is PushResult.APPLIED
    assert leader.pusher.raised == 0


async def test_another_key_is_refused_until_the_file_lists_it(replica, elect, caplog) -> None:
    operator = elect(1)
    operator.pusher._key = SigningKey(b"n" * 32)
    assert await operator.push(replica) is PushResult.UNKNOWN_KEY
    replica.set_policy(trustedKeys=[operator.pusher._key.public])
    assert await operator.push(replica) is PushResult.APPLIED


async def test_nothing_secret_is_logged(replica, elect, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    await elect(1).push(replica)
    assert KEY.seed.hex() not in caplog.text
    assert "kkkk" not in caplog.text
