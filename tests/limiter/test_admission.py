"""Admission as clients meet it: who goes first, who waits, who is refused, and what leaving does."""

from __future__ import annotations

import asyncio
import json

import pytest

from penstock.admission.shed import Shed
from penstock.api.engine import EngineType
from penstock.limiter import reading
from penstock.limiter.drain import Phase

ONE = {"maximum": 1}
TWO = {"maximum": 2}
TRUSTED = {"identifyBy": "ClientAddress", "trustedProxies": ["127.0.0.0/8"], "default": {}}
UNTRUSTED = {"identifyBy": "ClientAddress", "default": {}}
ALLOWED = {"identifyBy": "ClientAddress", "default": {"allowedPriorityClasses": ["interactive", "batch"]}}
BATCH = "x-penstock-priority: batch\r\n"
INTERACTIVE = "x-penstock-priority: interactive\r\n"
SOON = {"1", "2"}
"""The least there is to be told, with what is added so that not all come back at once."""


def named(name: str) -> bytes:
    return json.dumps({"prompt": name}).encode()


def names(bodies: list[bytes]) -> list[str]:
    return [json.loads(body)["prompt"] for body in bodies]


def books(rig):
    return rig.limiter.admission.gate.books


def serves_slowly(rig) -> None:
    """Let the gate believe that a place becomes free every ten seconds."""
    rate, now = rig.limiter.admission.gate.waits.completions, asyncio.get_running_loop().time()
    rate.run(now - 60, running=True)
    for ago in range(50, 0, -10):
        rate.add(1, now - ago)


# ---- who waits


@pytest.mark.parametrize(
    ("engine", "slots", "admission", "at_once"),
    [
        (EngineType.LLAMA_CPP, 1, {}, 1),
        (EngineType.LLAMA_CPP, 2, {"concurrency": {"maximum": 9}}, 2),
        (EngineType.VLLM, None, {"concurrency": ONE}, 1),
        (EngineType.VLLM, 2, {}, 2),
    ],
    ids=["the slot of llama.cpp", "never above its slots", "the maximum of the policy", "what vLLM was told"],
)
async def test_no_more_are_at_the_engine_than_it_can_take(open_rig, engine, slots, admission, at_once: int) -> None:
    async with open_rig(settings_of={"engine_type": engine, "max_concurrency": slots}, **admission) as rig:
        held = rig.hold()
        clients = [await rig.begin() for _ in range(at_once)]
        await rig.until(lambda: len(held.calls) == at_once)
        clients += [await rig.queue() for _ in range(3)]
        for number in range(at_once + 3):
            await rig.until(lambda: len(held.calls) > number)  # noqa: B023 - awaited at once
            assert rig.limiter.admission.gate.in_flight <= at_once
            held.answer(number)
        assert [(await client.reply()).status for client in clients] == [200] * (at_once + 3)
        await rig.settled()
        assert books(rig).admitted == at_once + 3


@pytest.mark.parametrize(
    ("tenants", "order"),
    [
        (TRUSTED, ["interactive", "normal", "batch"]),
        (ALLOWED, ["interactive", "normal", "batch"]),
        (UNTRUSTED, ["batch", "normal", "interactive"]),
        (None, ["batch", "normal", "interactive"]),
    ],
    ids=["from a trusted proxy", "of a class that may choose", "not believed", "without tenants"],
)
async def test_the_class_in_the_header_decides_the_order_for_those_who_may_choose(open_rig, tenants, order) -> None:
    async with open_rig(concurrency=ONE, tenants=tenants) as rig:
        held = rig.hold()
        await rig.begin(named("first"))
        await rig.until(lambda: len(held.calls) == 1)
        for name in ("batch", "normal", "interactive"):
            await rig.queue(named(name), headers=f"x-penstock-priority: {name}\r\n")
        for number in range(4):
            await rig.until(lambda: len(held.calls) > number)  # noqa: B023 - awaited at once
            held.answer(number)
        await rig.settled()
        assert names(held.bodies) == ["first", *order]


async def test_several_choices_count_as_several_requests(open_rig) -> None:
    async with open_rig(concurrency={"maximum": 3}) as rig:
        held = rig.hold()
        await rig.begin(b'{"n": 2}')
        await rig.until(lambda: len(held.calls) == 1)
        await rig.queue(b'{"n": 2}')
        assert rig.limiter.admission.gate.in_flight == 2
        held.answer(0)
        await rig.until(lambda: len(held.calls) == 2)
        held.answer(1)
        await rig.settled()
        assert books(rig).admitted == 4


# ---- who is refused


@pytest.mark.parametrize(
    ("overload", "status"), [("ServiceUnavailable", 503), ("TooManyRequests", 429)], ids=["503", "429"]
)
async def test_a_full_queue_refuses_at_once(open_rig, overload: str, status: int) -> None:
    async with open_rig(concurrency=ONE, queue={"maxRequests": 1}, overloadStatus=overload) as rig:
        held = rig.hold()
        await rig.begin()
        await rig.until(lambda: len(held.calls) == 1)
        await rig.queue(b"{ }")
        reply = await rig.post(b"{  }")
        assert (reply.status, reply.error["code"]) == (status, "overloaded")
        assert reply.header("x-penstock-reason") == "overloaded"
        assert reply.header("retry-after") in SOON
        assert books(rig).shed == {("normal", Shed.QUEUE_FULL): 1}
        held.answer(0)
        await rig.until(lambda: len(held.calls) == 2)
        held.answer(1)
        await rig.settled()
        assert len(held.calls) == 2


async def test_who_is_pushed_out_by_a_higher_class_is_told_at_once(open_rig) -> None:
    async with open_rig(concurrency=ONE, queue={"maxRequests": 1}, tenants=TRUSTED) as rig:
        held = rig.hold()
        await rig.begin()
        await rig.until(lambda: len(held.calls) == 1)
        low = await rig.queue(headers=BATCH)
        high = await rig.begin(named("high"), headers=INTERACTIVE)
        reply = await low.reply()
        assert (reply.status, reply.error["code"]) == (429, "shed_low_priority")
        assert reply.header("retry-after") in SOON
        assert not held.calls[1:]
        held.answer(0)
        await rig.until(lambda: len(held.calls) == 2)
        held.answer(1)
        assert (await high.reply()).status == 200


async def test_who_would_wait_too_long_is_told_at_once_and_when_to_come_back(open_rig) -> None:
    async with open_rig(concurrency=ONE) as rig:
        held = rig.hold()
        await rig.begin()
        await rig.until(lambda: len(held.calls) == 1)
        serves_slowly(rig)
        await rig.queue(b"{ }")
        reply = await rig.post(b"{  }", headers="x-penstock-deadline-ms: 15000\r\n")
        assert (reply.status, reply.error["code"]) == (503, "overloaded")
        assert 10 <= int(reply.header("retry-after") or 0) <= 40
        assert books(rig).shed == {("normal", Shed.WAIT_TOO_LONG): 1}


@pytest.mark.parametrize(
    "headers",
    ["x-penstock-deadline-ms: 100\r\n", "x-stainless-read-timeout: 0.2\r\n"],
    ids=["the client's deadline", "half of the SDK's time-out"],
)
async def test_who_has_waited_as_long_as_it_may_is_told(open_rig, headers: str) -> None:
    async with open_rig(concurrency=ONE) as rig:
        held = rig.hold()
        await rig.begin()
        await rig.until(lambda: len(held.calls) == 1)
        loop = asyncio.get_running_loop()
        began = loop.time()
        reply = await rig.post(b"{ }", headers=headers)
        assert loop.time() - began >= 0.1
        assert (reply.status, reply.error["code"]) == (503, "queue_timeout")
        assert reply.header("retry-after") in SOON
        assert len(rig.limiter.admission.room) == 0
        assert rig.limiter.admission.recently_shed.total(loop.time()) == 1
        held.answer(0)
        await rig.settled()
        assert len(held.calls) == 1


async def test_the_queues_own_bound_holds_without_any_header(open_rig) -> None:
    async with open_rig(concurrency=ONE, queue={"maxWaitSeconds": 0}) as rig:
        rig.hold()
        await rig.begin()
        await rig.until(lambda: books(rig).in_flight == 1)
        assert (await rig.post(b"{ }")).error["code"] == "overloaded"


async def test_a_client_without_patience_is_served_while_there_is_room(open_rig) -> None:
    async with open_rig(concurrency=ONE) as rig:
        assert (await rig.post(headers="x-penstock-deadline-ms: 0\r\n")).status == 200


@pytest.mark.parametrize(("percent", "busy", "status"), [(0, True, 503), (0, False, 200), (20, True, 200)])
async def test_repetitions_are_refused_only_while_the_replica_is_busy(open_rig, percent, busy, status: int) -> None:
    async with open_rig(concurrency=ONE, retryBudgetPercent=percent) as rig:
        held = rig.hold()
        if busy:
            await rig.begin()
            await rig.until(lambda: len(held.calls) == 1)
        client = await rig.begin(b"{ }", headers="x-stainless-retry-count: 1\r\n")
        if status == 200:
            for number in range(1 + busy):
                await rig.until(lambda: len(held.calls) > number)  # noqa: B023 - awaited at once
                held.answer(number)
        reply = await client.reply()
        assert reply.status == status
        if status == 503:
            assert (reply.error["code"], reply.header("x-should-retry")) == ("retry_budget_exhausted", "false")
            assert rig.limiter.admission.shed == {("normal", Shed.RETRY_BUDGET): 1}
            assert len(held.calls) == 1
        else:
            await rig.settled()
            assert books(rig).retries == 1


async def test_the_same_body_is_a_repetition_after_it_got_no_whole_answer(open_rig) -> None:
    async with open_rig(concurrency={"maximum": 9}) as rig:
        held = rig.hold()
        first, _ = await rig.begin(named("a")), await rig.begin(named("a"))
        await rig.until(lambda: len(held.calls) == 2)
        assert books(rig).retries == 0
        first.reset()
        await rig.until(lambda: books(rig).cancelled == 1)
        await rig.begin(named("a"))
        await rig.until(lambda: len(held.calls) == 3)
        assert books(rig).retries == 1
        held.answer(1)
        held.answer(2)
        await rig.settled()
        await rig.begin(named("a"))
        await rig.until(lambda: len(held.calls) == 4)
        assert books(rig).retries == 1


# ---- who leaves


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_client_that_leaves_the_queue_frees_its_place(open_rig, how: str) -> None:
    async with open_rig(concurrency=ONE, queue={"maxRequests": 1}) as rig:
        held = rig.hold()
        await rig.begin()
        await rig.until(lambda: len(held.calls) == 1)
        client = await rig.queue(named("left"))
        client.reset() if how == "reset" else client.close()
        await rig.until(lambda: not len(rig.limiter.admission.room))
        other = await rig.queue(named("other"))
        held.answer(0)
        await rig.until(lambda: len(held.calls) == 2)
        held.answer(1)
        assert (await other.reply()).status == 200
        await rig.settled()
        assert json.loads(held.bodies[1]) == {"prompt": "other"}
        assert (books(rig).left, books(rig).admitted) == (1, 2)


async def test_a_client_that_only_stopped_sending_keeps_its_place(open_rig) -> None:
    async with open_rig(concurrency=ONE) as rig:
        held = rig.hold()
        await rig.begin()
        await rig.until(lambda: len(held.calls) == 1)
        client = await rig.queue()
        client.writer.write_eof()
        await asyncio.sleep(0.2)
        held.answer(0)
        await rig.until(lambda: len(held.calls) == 2)
        held.answer(1)
        assert [(await client.reply()).status for _ in range(2)] == [100, 200]


async def test_a_client_that_leaves_the_engine_lets_the_next_one_go(open_rig) -> None:
    async with open_rig(concurrency=ONE) as rig:
        held = rig.hold()
        first = await rig.begin()
        await rig.until(lambda: len(held.calls) == 1)
        second = await rig.queue()
        first.abort()
        await rig.until(lambda: len(held.calls) == 2)
        held.answer(1)
        assert (await second.reply()).status == 200
        assert books(rig).cancelled == 1


async def test_an_engine_that_fails_lets_the_next_one_go(open_rig) -> None:
    async with open_rig(concurrency=ONE) as rig:

        async def fail(call) -> None:
            call.writer.transport.abort()

        held = rig.hold(fail)
        first = await rig.begin()
        await rig.until(lambda: len(held.calls) == 1)
        second = await rig.queue()
        held.answer(0)
        assert (await first.reply()).status == 502
        await rig.until(lambda: len(held.calls) == 2)
        held.answer(1)
        assert (await second.reply()).status == 502
        await rig.settled()


# ---- drain


async def test_a_drain_serves_those_that_wait_and_is_over_when_none_is_left(open_rig) -> None:
    async with open_rig(concurrency=ONE) as rig:
        held = rig.hold()
        clients = [await rig.begin()]
        await rig.until(lambda: len(held.calls) == 1)
        clients += [await rig.queue() for _ in range(2)]
        drain = asyncio.create_task(rig.drain())
        await rig.until(lambda: rig.limiter.drainer.state.phase is Phase.DRAINING)
        assert (await rig.post()).error["code"] == "draining"
        for number in range(3):
            await rig.until(lambda: len(held.calls) > number)  # noqa: B023 - awaited at once
            assert rig.limiter.drainer.state.phase is Phase.DRAINING
            held.answer(number)
        assert (await drain).status == 200
        assert [(await client.reply()).status for client in clients] == [200] * 3


async def test_a_drain_ends_when_the_last_one_that_waits_leaves(open_rig) -> None:
    async with open_rig(concurrency=ONE) as rig:
        held = rig.hold()
        await rig.begin()
        await rig.until(lambda: len(held.calls) == 1)
        waiting = await rig.queue()
        drain = asyncio.create_task(rig.drain())
        await rig.until(lambda: rig.limiter.drainer.state.phase is Phase.DRAINING)
        rig.limiter.admission.gate.limit.set(1, "test")
        waiting.abort()
        await rig.until(lambda: not len(rig.limiter.admission.room))
        assert rig.limiter.drainer.state.phase is Phase.DRAINING
        held.answer(0)
        assert (await drain).status == 200


async def test_at_the_deadline_of_a_drain_all_are_told_and_none_goes_to_the_engine(open_rig) -> None:
    """Not even one that has room because the one before it was told."""
    async with open_rig(concurrency=TWO, settings_of={"drain_timeout_seconds": 1}) as rig:
        held = rig.hold()
        running = await rig.begin()
        await rig.until(lambda: len(held.calls) == 1)
        waiting = [await rig.queue(b'{"n": 2}'), await rig.queue(b'{"n": 1}')]
        assert (await rig.drain()).status == 200
        for client in (running, *waiting):
            reply = await client.reply()
            assert (reply.status, reply.error["code"]) == (503, "draining")
        await rig.settled()
        assert len(held.calls) == 1
        assert (books(rig).admitted, books(rig).cancelled) == (1, 1)


# ---- reload


async def test_a_larger_limit_lets_those_that_wait_go_and_a_smaller_one_cuts_nobody(open_rig) -> None:
    async with open_rig(concurrency=ONE) as rig:
        held = rig.hold()
        clients = [await rig.begin()]
        await rig.until(lambda: len(held.calls) == 1)
        clients += [await rig.queue() for _ in range(3)]
        rig.set_policy(admission={"concurrency": {"maximum": 3}})
        await rig.until(lambda: len(held.calls) == 3)
        rig.set_policy(admission={"concurrency": ONE, "queue": {"maxRequests": 0}})
        assert len(rig.limiter.admission.room) == 1
        for number in range(3):
            held.answer(number)
        await rig.until(lambda: len(held.calls) == 4)
        held.answer(3)
        assert [(await client.reply()).status for client in clients] == [200] * 4


async def test_a_class_that_is_gone_is_served_as_normal(open_rig) -> None:
    async with open_rig(concurrency=ONE, tenants=TRUSTED) as rig:
        held = rig.hold()
        await rig.begin()
        await rig.until(lambda: len(held.calls) == 1)
        client = await rig.queue(headers=BATCH)
        rig.set_policy(admission={"concurrency": ONE, "priorityClasses": [{"name": "normal"}]}, tenants=TRUSTED)
        assert rig.limiter.admission.state()["waiting"] == {"normal": 1}
        held.answer(0)
        await rig.until(lambda: len(held.calls) == 2)
        held.answer(1)
        assert (await client.reply()).status == 200
        assert (await rig.admin("/metrics")).status == 200


async def test_a_policy_that_says_the_same_of_the_limit_leaves_it_where_it_is(open_rig) -> None:
    async with open_rig(concurrency={"maximum": 8}) as rig:
        rig.limiter.admission.gate.limit.set(3, "pressure")
        rig.set_policy(admission={"concurrency": {"maximum": 8}}, maximumBodyMebibytes=2)
        assert rig.limiter.admission.gate.limit.value == 3
        rig.set_policy(admission={"concurrency": {"maximum": 9}})
        assert rig.limiter.admission.gate.limit.value == 9


@pytest.mark.parametrize("mode", ["Shadow", "Disabled"])
async def test_nobody_waits_any_more_once_decisions_are_not_enforced(open_rig, mode: str) -> None:
    pace = {"name": "pace", "algorithm": "LeakyBucket", "limit": 3, "windowSeconds": 60}
    async with open_rig(concurrency=ONE, rateLimits=[pace]) as rig:
        held = rig.hold()
        await rig.begin()
        await rig.until(lambda: len(held.calls) == 1)
        await rig.queue()  # held by the pace
        rig.set_policy(admission={"concurrency": ONE})
        await rig.queue(b"{ }")  # held by the gate
        rig.set_policy(admission={"concurrency": ONE, "mode": mode})
        await rig.until(lambda: len(held.calls) == 3)
        for number in range(3):
            held.answer(number)
        await rig.settled()


# ---- not enforced


async def decisions(rig) -> dict[object, int]:
    """Make the same mistakes at any replica and return what was decided about them."""
    admission, relay, held = rig.limiter.admission, rig.limiter.relay, rig.hold()
    mistakes = ("at the engine", "waits", "finds the queue full", "so does this", "again", "large" * 100)
    for count, name in enumerate(mistakes, 1):
        await rig.begin(named(name), headers=f"x-stainless-retry-count: {int(name == 'again')}\r\n")
        await rig.until(
            lambda: len(held.calls) + len(admission.room) + sum(relay.refusals.values()) == count  # noqa: B023
        )
    return dict(books(rig).shed + admission.shed)


async def test_shadow_decides_the_same_and_refuses_nothing(open_rig) -> None:
    quotas = [
        {"name": "requests", "algorithm": "FixedWindow", "limit": 3, "windowSeconds": 86400},
        {"name": "prompts", "unit": "PromptTokens", "limit": 100},
    ]
    policy = {"concurrency": ONE, "queue": {"maxRequests": 1}, "retryBudgetPercent": 0, "rateLimits": quotas}
    found = []
    for mode in ("Enforce", "Shadow"):
        async with open_rig(mode=mode, **policy) as rig:
            found.append(await decisions(rig))
            assert len(rig.engine.calls) == (6 if mode == "Shadow" else 1)
            assert rig.limiter.admission.retries.retries == 0
    sheds = {Shed.QUEUE_FULL: 2, Shed.RETRY_BUDGET: 1, Shed.NEVER_FITS: 1}
    assert found[0] == found[1] == {("normal", shed): count for shed, count in sheds.items()}


async def test_shadow_counts_unknown_callers_and_bad_bodies_as_enforcing_does(open_rig) -> None:
    known = {"identifyBy": "Header", "header": "x-tenant", "trustedProxies": ["127.0.0.0/8"]}
    found = []
    for mode in ("Enforce", "Shadow"):
        async with open_rig(mode=mode, tenants=known, rateLimits=[{"name": "r", "limit": 1}]) as rig:
            told = [(await rig.post()).status for _ in range(2)]
            told += [(await rig.post(body, headers="x-tenant: one\r\n")).status for body in (b"no JSON", b"{}", b"{ }")]
            assert told == ([401, 401, 400, 200, 429] if mode == "Enforce" else [200] * 5)
            found.append(dict(rig.limiter.admission.shed))
    sheds = {Shed.UNKNOWN_CALLER: 2, Shed.BAD_REQUEST: 1, Shed.QUOTA: 1}
    assert found[0] == found[1] == {("normal", shed): count for shed, count in sheds.items()}


@pytest.mark.parametrize("mode", ["Shadow", "Disabled"])
async def test_what_cannot_be_read_or_is_from_nobody_passes_when_nothing_is_enforced(open_rig, mode: str) -> None:
    async with open_rig(mode=mode, tenants={"identifyBy": "ClientAddress"} | {"identifyBy": "ApiKey"}) as rig:
        assert (await rig.post(b"no JSON")).status == 200
        assert rig.engine.calls[0].body == b"no JSON"


async def test_disabled_admits_all_and_reads_no_body(open_rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "wish_of", None)
    limit = {"name": "r", "limit": 1}
    async with open_rig(mode="Disabled", concurrency=ONE, queue={"maxRequests": 0}, rateLimits=[limit]) as rig:
        held = rig.hold()
        for _ in range(5):
            await rig.begin(b'{"stream": true}')
        await rig.until(lambda: len(held.calls) == 5)
        assert set(held.bodies) == {b'{"stream": true}'}
        drain = asyncio.create_task(rig.drain())
        await rig.until(lambda: rig.limiter.drainer.state.phase is Phase.DRAINING)
        for number in range(5):
            held.answer(number)
        assert (await drain).status == 200
        assert not books(rig).shed


# ---- what is shown


async def test_the_state_tells_mode_limit_and_who_waits(open_rig) -> None:
    async with open_rig(concurrency=ONE, tenants=TRUSTED) as rig:
        held = rig.hold()
        await rig.begin()
        await rig.until(lambda: len(held.calls) == 1)
        await rig.queue(headers=BATCH)
        state = json.loads((await rig.admin("/state")).body)
        shown = {name: state[name] for name in ("mode", "limit", "inFlight", "waiting", "delayed", "admitted", "drift")}
        assert shown == {
            "mode": "Enforce",
            "limit": {"value": 1, "floor": 1, "ceiling": 1, "reason": "bounds"},
            "inFlight": 1,
            "waiting": {"batch": 1},
            "delayed": 0,
            "admitted": 1,
            "drift": 0,
        }
