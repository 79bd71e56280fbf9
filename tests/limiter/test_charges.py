"""Quotas as clients meet them: what a request is charged on every way it can end, and what its answer tells."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from penstock.admission.shed import Shed

DAY_SECONDS = 86_400
MESSAGES = "/v1/messages"
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
STREAM = b'{"stream": true, "prompt": "hello"}'
BIG = 1_000_000


def quota(name: str, *, limit: int = BIG, **more: object) -> dict[str, object]:
    """A quota that nothing comes back to while a test runs."""
    return {"name": name, "algorithm": "FixedWindow", "limit": limit, "windowSeconds": DAY_SECONDS} | more


TOKENS = quota("tokens", unit="Tokens")
PROMPTS = quota("prompts", unit="PromptTokens")
REQUESTS = quota("requests")


def used(rig, tenant: str = "default") -> dict[str, int]:
    """What is counted now, by quota."""
    now = asyncio.get_running_loop().time()
    view = rig.limiter.admission.charges.quotas.view(tenant, "127.0.0.1", now)
    return {one.name: one.limit - one.remaining for one in view}


def chunk(event: object) -> bytes:
    data = b"data: %b\n\n" % (event if isinstance(event, bytes) else json.dumps(event, separators=(",", ":")).encode())
    return b"%x\r\n%b\r\n" % (len(data), data)


def token(text: str, finish: str | None = None) -> bytes:
    return chunk({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})


USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
ROLE = chunk({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
USAGE_EVENT = chunk({"choices": [], "usage": USAGE})


def answer(body: object, *, status: int = 200, cut: int = 0):
    """A whole answer, or one that breaks off so many bytes before its end."""
    text = json.dumps(body).encode()

    async def script(call) -> None:
        await call.send(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(text)) + text[: len(text) - cut])
        if cut:
            await call.client_left()

    return script


# ---- what is charged


async def test_an_answer_is_charged_what_it_reports(open_rig) -> None:
    async with open_rig(rateLimits=[TOKENS, PROMPTS, REQUESTS]) as rig:
        rig.engine.script = answer({"usage": USAGE})
        assert (await rig.post(b'{"prompt": "hello", "max_tokens": 100}')).status == 200
        await rig.settled()
        assert used(rig) == {"tokens": 12, "prompts": 7, "requests": 1}


async def test_while_it_runs_a_request_is_charged_its_estimate(open_rig) -> None:
    async with open_rig(rateLimits=[TOKENS, PROMPTS, REQUESTS]) as rig:
        held = rig.hold()
        await rig.begin(b'{"prompt": "%b", "max_tokens": 100, "n": 2}' % (b"x" * 360))
        await rig.until(lambda: len(held.calls) == 1)
        assert used(rig) == {"tokens": 300, "prompts": 100, "requests": 1}


@pytest.mark.parametrize("status", [400, 429, 500, 503])
async def test_an_error_of_the_engine_costs_a_request_and_no_tokens(open_rig, status: int) -> None:
    async with open_rig(rateLimits=[TOKENS, REQUESTS]) as rig:
        rig.engine.script = answer({"error": {"message": "no"}}, status=status)
        assert (await rig.post(STREAM)).status == status
        await rig.settled()
        assert used(rig) == {"tokens": 0, "requests": 1}


@pytest.mark.parametrize(
    ("garbage", "requests"), [(b"", 0), (b"SSH-2.0-nothing\r\n\r\n", 1)], ids=["no answer", "no HTTP"]
)
async def test_an_engine_that_fails_costs_no_tokens(open_rig, garbage: bytes, requests: int) -> None:
    async def fail(call) -> None:
        await call.send(garbage)
        call.writer.transport.close()

    async with open_rig(rateLimits=[TOKENS, REQUESTS]) as rig:
        rig.engine.script = fail
        assert (await rig.post()).status == 502
        await rig.settled()
        assert used(rig) == {"tokens": 0, "requests": requests}


async def test_an_engine_that_is_not_there_costs_nothing(open_rig) -> None:
    async with open_rig(rateLimits=[TOKENS, REQUESTS]) as rig:
        await rig.engine.stop()
        assert (await rig.post()).status == 503
        await rig.settled()
        assert used(rig) == {"tokens": 0, "requests": 0}


async def test_a_stream_that_the_client_leaves_is_charged_what_was_counted(open_rig) -> None:
    """Tokens that passed on the lane are counted like those that were read."""
    tokens = 20

    async def stream(call) -> None:
        await call.send(SSE + ROLE)
        for number in range(tokens):
            await call.send(token("x" * (number % 3)) if number else token("x"))
            await asyncio.sleep(0.002)
        await call.client_left()

    async with open_rig(rateLimits=[TOKENS, PROMPTS]) as rig:
        rig.engine.script = stream
        client = await rig.begin(b'{"stream": true, "prompt": "%b"}' % (b"x" * 36))
        await client.reader.readuntil(b"\r\n\r\n")
        for _ in range(tokens + 1):
            await client.reader.readuntil(b"\n\n\r\n")
        before = rig.limiter.relay.loop.direct.lane_bytes
        assert before > 0
        client.reset()
        await rig.settled()
        assert used(rig) == {"tokens": 10 + tokens, "prompts": 10}


async def test_a_stream_of_anthropics_that_the_client_leaves_is_charged_what_was_counted(open_rig) -> None:
    start = chunk({"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 0}}})
    delta = chunk({"type": "content_block_delta", "delta": {"text": "x"}})

    async def stream(call) -> None:
        await call.send(SSE + start + delta + delta)
        await call.client_left()

    async with open_rig(rateLimits=[TOKENS]) as rig:
        rig.engine.script = stream
        client = await rig.begin(STREAM, path=MESSAGES)
        await client.reader.readuntil(delta + delta)
        client.reset()
        await rig.settled()
        assert used(rig) == {"tokens": 11}


async def test_an_answer_whose_client_leaves_before_its_usage_is_charged_the_estimate(open_rig) -> None:
    async with open_rig(rateLimits=[TOKENS]) as rig:
        rig.engine.script = answer({"choices": [], "text": "x" * 100, "usage": USAGE}, cut=90)
        client = await rig.begin(b'{"prompt": "%b", "max_tokens": 50}' % (b"x" * 36))
        await client.reader.readuntil(b"\r\n\r\n")
        client.reset()
        await rig.settled()
        assert used(rig) == {"tokens": 60}


async def test_an_answer_that_breaks_off_behind_its_usage_is_charged_what_it_says(open_rig) -> None:
    async with open_rig(rateLimits=[TOKENS]) as rig:
        rig.engine.script = answer({"usage": USAGE, "more": "x" * 100}, cut=90)
        client = await rig.begin()
        await client.reader.readuntil(b'"more"')
        client.reset()
        await rig.settled()
        assert used(rig) == {"tokens": 12}


async def test_who_leaves_before_the_answer_begins_pays_the_prompt(open_rig) -> None:
    """Else whoever leaves in time would use the engine for nothing."""
    async with open_rig(rateLimits=[TOKENS, PROMPTS, REQUESTS]) as rig:
        held = rig.hold()
        client = await rig.begin(b'{"prompt": "%b", "max_tokens": 50}' % (b"x" * 36))
        await rig.until(lambda: len(held.calls) == 1)
        client.reset()
        await rig.settled()
        assert used(rig) == {"tokens": 10, "prompts": 10, "requests": 1}


@pytest.mark.parametrize("number", [b"1e999", b"9" * 5000])
async def test_options_that_cannot_be_amended_go_on_as_they_are_and_leave_no_charge_behind(open_rig, number) -> None:
    async with open_rig(rateLimits=[TOKENS, REQUESTS]) as rig:
        rig.engine.script = answer({"usage": USAGE})
        body = b'{"stream": true, "stream_options": {"x": %b}}' % number
        assert (await rig.post(body)).status in {200, 400}
        await rig.settled()
        assert used(rig)["tokens"] in {0, 12}
        assert all(call.body == body for call in rig.engine.calls)


async def test_what_never_reached_the_engine_costs_nothing(open_rig) -> None:
    policy = {"concurrency": {"maximum": 1}, "queue": {"maxRequests": 2}, "rateLimits": [TOKENS, REQUESTS]}
    async with open_rig(**policy) as rig:
        held = rig.hold(answer({"usage": USAGE}))
        await rig.begin()
        await rig.until(lambda: len(held.calls) == 1)
        leaves = await rig.queue(b"{ }")
        late = await rig.queue(b"{  }", headers="x-penstock-deadline-ms: 200\r\n")
        assert (await rig.post(b"{   }")).error["code"] == "overloaded"
        leaves.reset()
        assert (await late.reply()).error["code"] == "queue_timeout"
        assert used(rig)["requests"] == 1
        held.answer(0)
        await rig.settled()
        assert used(rig) == {"tokens": 12, "requests": 1}


# ---- usage that only the limiter asked for


@pytest.mark.parametrize("joined", [True, False], ids=["with the end", "alone"])
async def test_the_usage_of_a_stream_is_asked_for_and_kept_from_the_client(open_rig, joined: bool) -> None:
    async def stream(call) -> None:
        assert json.loads(call.body)["stream_options"] == {"include_usage": True}
        await call.send(SSE + ROLE)
        for part in (token("a"), token("b"), token("", "stop")):
            await call.send(part)
            await asyncio.sleep(0.002)
        done = chunk(b"[DONE]")
        for part in [USAGE_EVENT + done + LAST] if joined else [USAGE_EVENT, done, LAST]:
            await call.send(part)
            await asyncio.sleep(0.002)

    async with open_rig(rateLimits=[TOKENS]) as rig:
        rig.engine.script = stream
        client = await rig.begin(STREAM)
        reply = await client.reply()
        events = [json.loads(one[6:]) for one in reply.body.split(b"\n\n")[:-2]]
        assert [one["choices"][0]["delta"].get("content") for one in events] == ["", "a", "b", ""]
        assert reply.body.endswith(b"data: [DONE]\n\n")
        await rig.settled()
        assert used(rig) == {"tokens": 12}


@pytest.mark.parametrize(
    ("limits", "body"),
    [([REQUESTS], STREAM), ([], STREAM), ([TOKENS], b'{"stream": true, "stream_options": {"include_usage": true}}')],
    ids=["no quota of tokens", "no quota", "the client asked itself"],
)
async def test_a_body_is_left_alone_when_nothing_is_to_be_learned(open_rig, limits, body: bytes) -> None:
    async with open_rig(rateLimits=limits) as rig:
        await rig.post(body)
        assert rig.engine.calls[0].body == body


# ---- who is refused


@pytest.mark.parametrize("unit", ["Requests", "Tokens"])
async def test_a_quota_that_is_used_up_is_429_with_the_time_to_wait(open_rig, unit: str) -> None:
    limit = {"name": "few", "unit": unit, "limit": 370, "windowSeconds": 370}
    async with open_rig(rateLimits=[limit | ({"limit": 1, "windowSeconds": 30} if unit == "Requests" else {})]) as rig:
        held = rig.hold()
        await rig.begin(b'{"max_tokens": 200}')
        await rig.until(lambda: len(held.calls) == 1)
        reply = await rig.post(b'{"max_tokens": 200 }')
        assert (reply.status, reply.error["code"]) == (429, "rate_limit_exceeded")
        assert reply.error["type"] == unit.lower()
        assert 25 <= int(reply.header("retry-after") or 0) <= 46
        assert reply.header(f"x-ratelimit-limit-{unit.lower()}") == str(1 if unit == "Requests" else 370)
        assert reply.header("ratelimit-policy") == ('"few";q=1;w=30' if unit == "Requests" else '"few";q=370;w=370')
        assert rig.limiter.admission.shed == {("normal", Shed.QUOTA): 1}
        assert len(held.calls) == 1


async def test_what_a_quota_never_lets_pass_is_400(open_rig) -> None:
    async with open_rig(rateLimits=[quota("prompts", unit="PromptTokens", limit=10)]) as rig:
        reply = await rig.post(b'{"prompt": "%b"}' % (b"x" * 1000))
        assert (reply.status, reply.error["code"], reply.header("retry-after")) == (400, "never_fits", None)
        assert rig.limiter.admission.shed == {("normal", Shed.NEVER_FITS): 1}
        assert (await rig.post(b'{"prompt": "x"}')).status == 200


async def test_a_large_body_is_not_read_when_its_quota_is_used_up(open_rig) -> None:
    async with open_rig(rateLimits=[quota("few", limit=1)]) as rig:
        await rig.post()
        client = await rig.connect()
        head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n"
        await client.send(head.encode())
        assert (await client.reply()).status == 429
        assert used(rig) == {"few": 1}


async def test_looking_ahead_for_a_large_body_charges_nothing(open_rig) -> None:
    async with open_rig(rateLimits=[quota("few", limit=1)]) as rig:
        assert (await rig.post(b'{"prompt": "%b"}' % (b"x" * 100_000))).status == 200
        assert used(rig) == {"few": 1}


# ---- what is told


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/v1/completions", ["x-ratelimit-limit-requests", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"]),
        (MESSAGES, ["anthropic-ratelimit-requests-limit", "anthropic-ratelimit-tokens-remaining"]),
    ],
)
async def test_answers_and_refusals_tell_what_is_left(open_rig, path: str, names: list[str]) -> None:
    async with open_rig(rateLimits=[quota("requests", limit=1), TOKENS]) as rig:
        for status in (200, 429):
            reply = await rig.post(b'{"max_tokens": 10}', path=path)
            assert reply.status == status
            assert all(reply.header(name) is not None for name in names)
            assert '"requests";r=0;t=' in (reply.header("ratelimit") or "")


async def test_without_quotas_nothing_is_told(open_rig) -> None:
    async with open_rig() as rig:
        assert b"ratelimit" not in (await rig.post()).head.lower()


async def test_in_shadow_nothing_is_told_that_would_make_clients_slow_down(open_rig) -> None:
    async with open_rig(mode="Shadow", rateLimits=[quota("few", limit=1)]) as rig:
        replies = [await rig.post(), await rig.post(b"{ }")]
        assert [reply.status for reply in replies] == [200, 200]
        assert b"ratelimit" not in replies[1].head.lower()
        assert rig.limiter.admission.shed == {("normal", Shed.QUOTA): 1}


# ---- an even pace

PACE = {"name": "pace", "algorithm": "LeakyBucket", "limit": 5, "windowSeconds": 1}
SLOW = {"name": "pace", "algorithm": "LeakyBucket", "limit": 3, "windowSeconds": 60}


async def test_a_leaky_bucket_starts_requests_at_an_even_pace(open_rig) -> None:
    async with open_rig(rateLimits=[PACE]) as rig:
        loop, starts = asyncio.get_running_loop(), []

        async def note(call) -> None:
            starts.append(loop.time())
            await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        rig.engine.script = note
        await asyncio.gather(*(rig.post(b"{ }" + b" " * number) for number in range(3)))
        assert starts[1] - starts[0] >= 0.15
        assert starts[2] - starts[1] >= 0.15


async def test_who_leaves_while_held_by_the_pace_is_forgotten(open_rig) -> None:
    async with open_rig(rateLimits=[SLOW, REQUESTS]) as rig:
        await rig.post()
        client = await rig.queue(b"{ }")
        assert rig.limiter.admission.state()["delayed"] == 1
        drain = asyncio.create_task(rig.drain())
        client.reset()
        assert (await drain).status == 200
        await rig.settled()
        assert used(rig)["requests"] == 1
        assert len(rig.engine.calls) == 1


async def test_a_pace_that_is_slower_than_a_client_may_wait_is_told_at_once(open_rig) -> None:
    async with open_rig(rateLimits=[SLOW, REQUESTS]) as rig:
        await rig.post()
        reply = await rig.post(b"{ }", headers="x-penstock-deadline-ms: 5000\r\n")
        assert (reply.status, reply.error["code"]) == (429, "rate_limit_exceeded")
        assert 14 <= int(reply.header("retry-after") or 0) <= 23
        assert used(rig)["requests"] == 1


async def test_after_the_pace_comes_the_gate(open_rig) -> None:
    async with open_rig(rateLimits=[PACE], concurrency={"maximum": 1}, queue={"maxRequests": 1}) as rig:
        held = rig.hold()
        await rig.begin()
        delayed = [await rig.begin(b"{ }"), await rig.begin(b"{  }")]
        await rig.until(lambda: rig.limiter.admission.gate.depth == 1)
        assert (await delayed[1].reply()).error["code"] == "overloaded"
        held.answer(0)
        await rig.until(lambda: len(held.calls) == 2)
        held.answer(1)
        assert (await delayed[0].reply()).status == 200


# ---- tenants


def keys(settings, **of_tenants: str) -> dict[str, object]:
    """Settings with a folder of keys."""
    folder = Path(settings.policy_path).with_name("keys")
    folder.mkdir()
    for tenant, key in of_tenants.items():
        (folder / tenant).write_text(key)
    return {"tenants_path": str(folder)}


async def test_each_tenant_has_a_quota_of_its_own_and_unknown_callers_are_401(open_rig, settings) -> None:
    limit = quota("each", limit=1, per="Tenant")
    secret = "a-key-of-red"
    of = keys(settings, red=secret, blue="another-key")
    async with open_rig(tenants={"identifyBy": "ApiKey"}, settings_of=of, rateLimits=[limit]) as rig:
        red, blue = f"Authorization: Bearer {secret}\r\n", "x-api-key: another-key\r\n"
        assert [(await rig.post(headers=red)).status for _ in range(2)] == [200, 429]
        assert (await rig.post(headers=blue)).status == 200
        reply = await rig.post(headers="Authorization: Bearer wrong\r\n")
        assert (reply.status, reply.error["code"]) == (401, "unauthorized")
        assert (await rig.ask(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")).status == 200
        assert (used(rig, "red"), used(rig, "blue")) == ({"each": 1}, {"each": 1})
        assert secret not in (await rig.admin("/metrics")).body.decode() + (await rig.admin("/state")).body.decode()


@pytest.mark.parametrize(
    ("trusted", "statuses"), [(["127.0.0.0/8"], [200, 429, 200]), (["10.0.0.0/8"], [200, 429, 429])]
)
async def test_a_header_names_the_tenant_only_through_a_trusted_proxy(open_rig, trusted, statuses) -> None:
    tenants = {"identifyBy": "Header", "header": "x-team", "trustedProxies": trusted, "default": {}}
    async with open_rig(tenants=tenants, rateLimits=[quota("each", limit=1, per="Tenant")]) as rig:
        found = [(await rig.post(headers=f"x-team: {team}\r\n")).status for team in ("red", "red", "blue")]
        assert found == statuses


async def test_addresses_are_counted_apart(open_rig) -> None:
    tenants = {"identifyBy": "ClientAddress", "trustedProxies": ["127.0.0.0/8"], "default": {}}
    async with open_rig(tenants=tenants, rateLimits=[quota("each", limit=1, per="Address")]) as rig:
        found = [
            (await rig.post(headers=f"X-Forwarded-For: {one}\r\n")).status for one in ("1.1.1.1", "1.1.1.1", "2.2.2.2")
        ]
        assert found == [200, 429, 200]


async def test_a_new_policy_keeps_what_is_counted_and_divides_by_replicas(open_rig) -> None:
    async with open_rig(rateLimits=[quota("all", limit=10)]) as rig:
        await rig.post()
        await rig.post(b"{ }")
        rig.set_policy(admission={"rateLimits": [quota("all", limit=20)]})
        assert used(rig) == {"all": 2}
        rig.set_policy(admission={"rateLimits": [quota("all", limit=20)]}, replicas=10)
        assert (await rig.post(b"{  }")).status == 429
