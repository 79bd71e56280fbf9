"""Pushing to limiters that are slow, gone, or not to be believed."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from penstock.api.push import Decision, Envelope, Pushed, PushedLimits, PushResult
from penstock.fleet import push as module
from penstock.fleet.push import HIGHEST_EPOCH, Pusher, Target
from penstock.fleet.rooms import PLACES
from penstock.fleet.signing import SigningKey

KEY = SigningKey(b"k" * 32)
LIMITS = PushedLimits(share=0.5, decision=Decision(rule="r"))


class Stub:
    """Answers as a test says, and keeps what it was sent."""

    def __init__(self):
        self.pushed = []
        self.connections = 0
        self.at_once = self.most_at_once = 0
        self.answer = lambda pushed: (200, {"result": "applied", "bootId": pushed.boot_id})
        self.delay_seconds = 0.0
        self.port = 0

    async def handle(self, request):
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            pushed = Pushed.parse(Envelope.parse(await request.read()).payload)
            self.pushed.append(pushed)
            await asyncio.sleep(self.delay_seconds)
        finally:
            self.at_once -= 1
        answer = self.answer(pushed)
        if isinstance(answer, web.Response):
            return answer
        status, body = answer
        return web.Response(status=status, body=body if isinstance(body, bytes) else json.dumps(body).encode())

    def target(self, pod="p", **values):
        return Target(backend_uid="b", pod_uid=pod, address="127.0.0.1", port=self.port, **values)


@asynccontextmanager
async def serving(stub):
    application = web.Application(client_max_size=2**21)
    application.router.add_route("*", "/{path:.*}", stub.handle)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    stub.port = runner.addresses[0][1]
    try:
        yield stub
    finally:
        await runner.cleanup()


@pytest.fixture
async def stub():
    async with serving(Stub()) as found:
        yield found


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as found:
        yield found


@pytest.fixture
def pusher(session):
    return Pusher(KEY, session, may_push=lambda: True, epoch=lambda: 3)


def refusal(result, *, boot="x", version=None):
    return lambda _pushed: (409, {"result": result, "bootId": boot, "version": version})


async def test_what_is_known_of_the_boot_is_used_at_once(stub, pusher):
    assert await pusher.push(stub.target(boot_id="x"), LIMITS, ttl_seconds=60) is PushResult.APPLIED
    (pushed,) = stub.pushed
    assert (pushed.backend_uid, pushed.pod_uid, pushed.boot_id) == ("b", "p", "x")
    assert (pushed.version.epoch, pushed.ttl_seconds, pushed.limits) == (3, 60, LIMITS)
    assert pusher.results == {PushResult.APPLIED: 1}


async def test_each_push_is_later_than_the_one_before_whoever_gets_it(stub, pusher):
    for pod in "abab":
        await pusher.push(stub.target(pod), LIMITS, ttl_seconds=60)
    versions = [pushed.version for pushed in stub.pushed]
    assert versions == sorted(set(versions))


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: (200, b"hello"),
        lambda _: (200, b""),
        lambda _: (200, b"[" * 3000),
        lambda _: (200, {"result": "applied", "bootId": "x", "message": "m" * 10_000}),
        lambda _: (500, {"result": "applied", "bootId": "x"}),
        lambda _: (404, b"no such path"),
        lambda _: (200, {"result": "not_leading", "bootId": "x"}),
        lambda _: web.Response(status=302, headers={"Location": "/elsewhere"}),
    ],
    ids=["text", "nothing", "deep", "long", "another status", "an old limiter", "no word of a limiter's", "a redirect"],
)
async def test_what_no_limiter_answers_is_no_answer(stub, pusher, answer):
    stub.answer = answer
    assert await pusher.push(stub.target(), LIMITS, ttl_seconds=60) is PushResult.UNREACHABLE
    assert len(stub.pushed) == 1


async def test_who_is_gone_is_unreachable(pusher, stub):
    gone = Target(backend_uid="b", pod_uid="p", address="127.0.0.1", port=1)
    assert await pusher.push(gone, LIMITS, ttl_seconds=60) is PushResult.UNREACHABLE


async def test_who_is_slow_is_late_and_holds_nobody_up(stub, pusher, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.2)
    stub.delay_seconds = 30
    slow = asyncio.create_task(pusher.push(stub.target(), LIMITS, ttl_seconds=60))
    async with serving(Stub()) as quick:
        assert await pusher.push(quick.target("q"), LIMITS, ttl_seconds=60) is PushResult.APPLIED
    assert await slow is PushResult.LATE


async def test_only_so_many_go_at_the_same_time_and_one_to_each_replica(stub, pusher, monkeypatch):
    stub.delay_seconds = 0.02
    pods = [f"p{number}" for number in range(PLACES + 20)]
    results = await asyncio.gather(*(pusher.push(stub.target(pod), LIMITS, ttl_seconds=60) for pod in pods))
    assert set(results) == {PushResult.APPLIED}
    assert 1 < stub.most_at_once <= PLACES
    stub.most_at_once = 0
    await asyncio.gather(*(pusher.push(stub.target(), LIMITS, ttl_seconds=60) for _ in range(5)))
    assert stub.most_at_once == 1


@pytest.mark.parametrize(
    "result", ["wrong_backend", "wrong_pod", "wrong_boot", "old_version"], ids=lambda result: result
)
async def test_a_refusal_that_does_not_end_is_repeated_once_at_most(stub, pusher, result):
    def answer(pushed):
        return refusal(result, boot=f"{pushed.boot_id}x", version=[pushed.version.epoch + 1, 0])(pushed)

    stub.answer = answer
    assert await pusher.push(stub.target(), LIMITS, ttl_seconds=60) == result
    assert len(stub.pushed) == (2 if result in ("wrong_boot", "old_version") else 1)


async def test_boot_and_epoch_are_learned_from_one_answer(stub, pusher):
    def answer(pushed):
        if pushed.boot_id != "x":
            return refusal("wrong_boot", version=[7, 7])(pushed)
        return (200, {"result": "applied", "bootId": "x", "version": list(pushed.version)})

    stub.answer = answer
    assert await pusher.push(stub.target(), LIMITS, ttl_seconds=60) is PushResult.APPLIED
    assert stub.pushed[-1].version.epoch == 8


async def test_the_same_version_of_another_leader_is_gone_above(stub, pusher):
    stub.answer = refusal("old_version", version=[3, 1])
    await pusher.push(stub.target(), LIMITS, ttl_seconds=60)
    assert [pushed.version.epoch for pushed in stub.pushed] == [3, 4]


@pytest.mark.parametrize("epoch", [HIGHEST_EPOCH, 2**70])
async def test_a_replica_that_lies_about_epochs_keeps_limits_from_itself_alone(stub, pusher, epoch):
    stub.answer = refusal("old_version", version=[epoch, 0])
    assert await pusher.push(stub.target("liar"), LIMITS, ttl_seconds=60) is not PushResult.APPLIED
    stub.answer = refusal("old_version", version=[HIGHEST_EPOCH - 1, 0])
    assert await pusher.push(stub.target("liar"), LIMITS, ttl_seconds=60) is PushResult.OLD_VERSION
    stub.answer = Stub().answer
    assert await pusher.push(stub.target("honest"), LIMITS, ttl_seconds=60) is PushResult.APPLIED
    assert stub.pushed[-1].version.epoch == 3


async def test_nothing_is_sent_by_who_does_not_lead(stub, session):
    pusher = Pusher(KEY, session, may_push=lambda: False, epoch=lambda: 3)
    assert await pusher.push(stub.target(), LIMITS, ttl_seconds=60) is PushResult.NOT_LEADING
    assert not stub.pushed


async def test_whether_it_leads_is_asked_again_when_the_connection_is_there(stub, session):
    answers = iter([True, False])
    pusher = Pusher(KEY, session, may_push=lambda: next(answers), epoch=lambda: 3)
    assert await pusher.push(stub.target(), LIMITS, ttl_seconds=60) is PushResult.NOT_LEADING
    assert not stub.pushed


async def test_a_policy_that_is_too_long_is_left_to_the_configmap(stub, pusher):
    limits = LIMITS.model_copy(update={"policy": "\u20ac" * module.PUSH_LIMIT_BYTES, "share": 0.25})
    assert await pusher.push(stub.target(), limits, ttl_seconds=60) is PushResult.APPLIED
    assert (stub.pushed[-1].limits.policy, stub.pushed[-1].limits.share) == (None, 0.25)


async def test_what_is_known_of_replicas_is_bounded_and_forgotten(stub, pusher, monkeypatch):
    monkeypatch.setattr(module, "REMEMBERED_REPLICAS", 3)
    for number in range(10):
        await pusher.push(stub.target(f"p{number}"), LIMITS, ttl_seconds=60)
    assert list(pusher._known) == ["p7", "p8", "p9"]
    pusher.forget("p8")
    pusher.forget("never seen")
    assert list(pusher._known) == ["p7", "p9"]


async def test_ipv6_addresses_are_written_as_hosts(pusher, session, monkeypatch):
    asked = []

    def put(url, **_named):
        asked.append(str(url))
        raise aiohttp.ClientConnectionError

    monkeypatch.setattr(session, "put", put)
    await pusher.push(Target(backend_uid="b", pod_uid="p", address="fd00::7"), LIMITS, ttl_seconds=60)
    assert asked == ["http://[fd00::7]:9901/limits"]


async def test_silent_replicas_hold_up_nobody_else(stub, session, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.5)
    pusher = Pusher(KEY, session, may_push=lambda: True, epoch=lambda: 3)
    with socket.create_server(("127.0.0.2", stub.port), backlog=200):
        silent = [
            Target(backend_uid="b", pod_uid=f"s{n}", address="127.0.0.2", port=stub.port) for n in range(PLACES + 6)
        ]
        results = await asyncio.gather(*(pusher.push(one, LIMITS, ttl_seconds=60) for one in silent))
        assert set(results) == {PushResult.LATE}
        pending = asyncio.gather(*(pusher.push(one, LIMITS, ttl_seconds=60) for one in silent))
        await asyncio.sleep(0.05)
        assert await pusher.push(stub.target(), LIMITS, ttl_seconds=60) is PushResult.APPLIED
        assert not pending.done()
        await pending
