"""`PUT /limits`: what is taken, what is refused as what, and what is in force afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.api.policy import Policy
from penstock.api.push import PUSH_LIMIT_BYTES, Decision, Envelope, Pushed, PushedLimits, Version
from penstock.fleet.signing import SigningKey

KEY, STRANGER = SigningKey(b"k" * 32), SigningKey(b"s" * 32)
POD = "pod-1"
PRESSURE = Decision(rule="pressure", signal="waiting", value=7, age_seconds=1)


def policy(**values) -> str:
    return json.dumps({"trustedKeys": [KEY.public], "maximumBodyMebibytes": 1, **values})


@pytest.fixture
def trusting(settings):
    """Settings of a replica that trusts the key and knows its pod."""
    Path(settings.policy_path).write_text(policy())
    return settings.model_copy(update={"pod_uid": POD})


@pytest.fixture
async def replica(trusting, make_rig):
    async with make_rig(trusting) as rig:
        yield rig


def limits(**values) -> PushedLimits:
    return PushedLimits(**{"rate_per_second": 2.0, "share": 0.25, "decision": PRESSURE, **values})


def boot_id(rig) -> str:
    return rig.limiter.pushes.acceptance.boot_id


def made(rig, *version: int, ttl: float = 60, limits_of: dict[str, object] | None = None, **of: str) -> Pushed:
    who = {"backend_uid": "uid", "pod_uid": POD, "boot_id": boot_id(rig), **of}
    return Pushed(**who, version=Version(*(version or (1, 1))), ttl_seconds=ttl, limits=limits(**(limits_of or {})))


async def put(rig, body: bytes):
    head = f"PUT /limits HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return await rig.ask(head.encode() + body, port=rig.settings.admin_port)


async def push(rig, pushed: Pushed, key: SigningKey = KEY):
    return await put(rig, key.seal(pushed).render())


async def counted(rig, result: str) -> float:
    text = (await rig.admin("/metrics")).body.decode()
    return float(text.split(f'penstock_push_total{{result="{result}"}} ')[1].split("\n")[0])


async def state(rig) -> dict[str, object]:
    body = (await rig.admin("/state")).body
    assert len(body) < 2048
    return json.loads(body)


# ---- what is refused, each counted, with nothing changed


async def refused(rig, reply, status: int, result: str) -> None:
    answer = json.loads(reply.body)
    assert (reply.status, answer["result"]) == (status, result)
    assert answer["bootId"] == boot_id(rig)
    assert answer["message"]
    assert await counted(rig, result) == 1


@pytest.mark.parametrize(
    ("of", "result"),
    [
        ({"backend_uid": "other"}, "wrong_backend"),
        ({"pod_uid": "other"}, "wrong_pod"),
        ({"boot_id": "other"}, "wrong_boot"),
        ({"boot_id": ""}, "wrong_boot"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value),
)
async def test_what_is_for_another_is_refused(replica, of, result) -> None:
    await refused(replica, await push(replica, made(replica, **of)), 409, result)
    assert replica.limiter.pushes.acceptance.limits is None


async def test_an_unknown_key_is_refused(replica) -> None:
    await refused(replica, await push(replica, made(replica), STRANGER), 403, "unknown_key")


async def test_a_stranger_who_takes_the_key_s_name_is_refused(replica) -> None:
    sealed = STRANGER.seal(made(replica))
    await refused(
        replica, await put(replica, Envelope(sealed.payload, sealed.signature, KEY.id).render()), 403, "bad_signature"
    )


@pytest.mark.parametrize("place", ["payload", "signature", "length"])
async def test_a_changed_push_is_refused(replica, place) -> None:
    sealed = KEY.seal(made(replica))
    payload, signature = bytearray(sealed.payload), bytearray(sealed.signature)
    if place == "payload":
        payload[payload.index(b"2.0")] = ord("9")
    elif place == "signature":
        signature[7] ^= 1
    else:
        del signature[-1]
    reply = await put(replica, Envelope(bytes(payload), bytes(signature), KEY.id).render())
    await refused(replica, reply, 403, "bad_signature")


@pytest.mark.parametrize("version", [(3, 4), (3, 3), (2, 99)], ids=["the same again", "earlier", "an earlier leader"])
async def test_an_old_version_is_refused_and_the_one_in_force_is_named(replica, version) -> None:
    assert (await push(replica, made(replica, 3, 4))).status == 200
    reply = await push(replica, made(replica, *version, limits_of={"share": 1}))
    await refused(replica, reply, 409, "old_version")
    assert json.loads(reply.body)["version"] == [3, 4]
    assert replica.limiter.admission.charges.quotas.share == 0.25


async def test_a_push_from_before_a_restart_is_refused_after_it(trusting, make_rig) -> None:
    async with make_rig(trusting) as rig:
        recorded = KEY.seal(made(rig, 9, 9)).render()
        assert (await put(rig, recorded)).status == 200
        before = boot_id(rig)
    async with make_rig(trusting) as rig:
        assert boot_id(rig) != before
        await refused(rig, await put(rig, recorded), 409, "wrong_boot")
        assert rig.limiter.pushes.acceptance.version is None


async def test_a_paused_leader_s_push_that_arrives_late_is_refused(replica) -> None:
    paused = KEY.seal(made(replica, 1, 500, limits_of={"share": 1})).render()
    assert (await push(replica, made(replica, 2, 1))).status == 200
    await refused(replica, await put(replica, paused), 409, "old_version")
    assert replica.limiter.admission.charges.quotas.share == 0.25


async def test_without_its_pod_s_uid_the_boot_id_binds(trusting, make_rig) -> None:
    async with make_rig(trusting.model_copy(update={"pod_uid": None})) as rig:
        assert (await push(rig, made(rig, pod_uid="whatever"))).status == 200
        assert (await push(rig, made(rig, 1, 2, boot_id="another"))).status == 409


# ---- garbage


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[" * 500_000, b"[" + b"1," * 400_000 + b"1]", b'{"payload":"","signature":"","key":1}', b"\xff" * 99],
    ids=["empty", "cut", "deep", "wide", "an empty envelope", "no text"],
)
async def test_garbage_is_refused(replica, body) -> None:
    reply = await put(replica, body)
    assert json.loads(reply.body)["result"] in {"malformed", "unknown_key"}
    assert reply.status in {400, 403}
    assert (await push(replica, made(replica))).status == 200


async def test_what_a_trusted_key_signed_and_is_no_push_is_malformed(replica) -> None:
    sealed = KEY._private.sign(b"[" * 1000)
    await refused(replica, await put(replica, Envelope(b"[" * 1000, sealed, KEY.id).render()), 400, "malformed")


async def test_a_body_without_end_is_refused_before_it_is_read(replica) -> None:
    head = f"PUT /limits HTTP/1.1\r\nHost: x\r\nContent-Length: {PUSH_LIMIT_BYTES + 1}\r\n\r\n"
    assert (await replica.ask(head.encode(), port=replica.settings.admin_port)).status == 413


async def test_limits_are_put_and_nothing_else(replica) -> None:
    reply = await replica.admin("/limits")
    assert (reply.status, reply.header("allow")) == (405, "PUT")


async def test_garbage_drops_no_stream(replica) -> None:
    held = replica.hold()
    client = await replica.begin()
    await replica.until(lambda: len(held.calls) == 1)
    for body in (b"[" * 500_000, b"x", KEY.seal(made(replica)).render()[:-9]):
        assert (await put(replica, body)).status == 400
    held.answer(0)
    assert (await client.reply()).status == 200


# ---- what is in force


async def test_limits_are_in_force_with_the_answer(replica) -> None:
    pushed = made(replica, 2, 7, limits_of={"peers": ("10.0.0.2", "10.0.0.3")})
    reply = await push(replica, pushed)
    assert json.loads(reply.body) == {
        "result": "applied",
        "message": "",
        "bootId": boot_id(replica),
        "version": [2, 7],
    }
    admission = replica.limiter.admission
    assert (admission.charges.quotas.share, admission.gate.rate_per_second) == (0.25, 2.0)
    shown = (await state(replica))["pushed"]
    assert shown["ttlLeftSeconds"] == pytest.approx(60, abs=10)
    assert shown["ageSeconds"] == pytest.approx(1, abs=10)
    del shown["ttlLeftSeconds"], shown["ageSeconds"]
    assert shown == {
        "standing": "fresh",
        "version": [2, 7],
        "rule": "pressure",
        "signal": "waiting",
        "value": 7,
        "ratePerSecond": 2.0,
        "share": 0.25,
        "peers": 2,
        "policy": False,
    }
    text = (await replica.admin("/metrics")).body.decode()
    for line in (
        'penstock_push_total{result="applied"} 1.0',
        'penstock_push_total{result="old_version"} 0.0',
        'penstock_push_standing{standing="fresh"} 1.0',
        'penstock_push_version{part="epoch"} 2.0',
        'penstock_push_version{part="counter"} 7.0',
        "penstock_push_peers 2.0",
        "penstock_push_share 0.25",
    ):
        assert line in text


async def test_before_the_first_push_state_says_so_and_names_the_boot(replica) -> None:
    shown = await state(replica)
    assert (shown["bootId"], shown["pushed"], shown["policy"]["source"]) == (boot_id(replica), None, "file")


async def test_the_share_survives_a_change_of_the_policy(replica) -> None:
    await push(replica, made(replica))
    replica.set_policy(replicas=2, trustedKeys=[KEY.public])
    assert replica.limiter.admission.charges.quotas.share == 0.25


async def test_a_pushed_policy_wins_over_the_file_while_the_ttl_runs(replica, monkeypatch) -> None:
    await push(replica, made(replica, ttl=60, limits_of={"policy": policy(maximumBodyMebibytes=7)}))
    assert replica.limiter.relay.body_limit_bytes == 7 << 20
    assert (await state(replica))["policy"]["source"] == "push"
    replica.set_policy(maximumBodyMebibytes=3, trustedKeys=[KEY.public])  # what kubelet brings late
    assert replica.limiter.relay.body_limit_bytes == 7 << 20
    later = replica.limiter.pushes._now() + 61
    monkeypatch.setattr(replica.limiter.pushes, "_now", lambda: later)
    replica.limiter.refresh_policy()
    assert replica.limiter.relay.body_limit_bytes == 3 << 20
    shown = await state(replica)
    assert (shown["policy"]["source"], shown["pushed"]["standing"]) == ("file", "held")


async def test_a_push_without_a_policy_gives_the_file_back(replica) -> None:
    await push(replica, made(replica, 1, 1, limits_of={"policy": policy(maximumBodyMebibytes=7)}))
    await push(replica, made(replica, 1, 2))
    assert replica.limiter.relay.body_limit_bytes == 1 << 20


@pytest.mark.parametrize("text", ["{", "[" * 5000, '{"replicas": 0}'], ids=["no JSON", "deep", "out of range"])
async def test_a_pushed_policy_that_is_not_valid_leaves_the_file_in_force_with_the_other_limits(replica, text) -> None:
    reply = await push(replica, made(replica, limits_of={"policy": text}))
    assert reply.status == 200
    assert "not valid" in json.loads(reply.body)["message"]
    assert replica.limiter.relay.body_limit_bytes == 1 << 20
    assert replica.limiter.admission.charges.quotas.share == 0.25


async def test_keys_are_trusted_by_the_file_alone(replica) -> None:
    smuggled = json.dumps({"trustedKeys": [KEY.public, STRANGER.public]})
    assert (await push(replica, made(replica, 1, 1, limits_of={"policy": smuggled}))).status == 200
    assert (await push(replica, made(replica, 1, 2), STRANGER)).status == 403
    replica.set_policy(trustedKeys=[STRANGER.public])
    assert (await push(replica, made(replica, 1, 3), STRANGER)).status == 200
    assert (await push(replica, made(replica, 1, 4), KEY)).status == 403


async def test_a_file_without_keys_trusts_nobody(rig) -> None:
    assert (await push(rig, made(rig))).status == 403


def test_the_policy_names_keys_in_one_form_only() -> None:
    for wrong in ("", "A" * 44, "A" * 42 + "B=", "A" * 43 + "=="):
        with pytest.raises(Exception, match="trustedKeys"):
            Policy.parse(json.dumps({"trustedKeys": [wrong]}))


async def test_a_flood_of_refusals_fills_no_log(replica, caplog) -> None:
    for _ in range(20):
        await push(replica, made(replica), STRANGER)
    assert caplog.text.count("unknown_key") == 1


# ---- peers


HOPPED = "x-penstock-hop: 1\r\nx-penstock-tenant: team-a\r\nx-penstock-client: 198.51.100.7\r\n"
BY_HEADER = {"identifyBy": "Header", "header": "x-team", "trustedProxies": ["192.0.2.1/32"]}


async def test_a_peer_is_believed_from_the_push_on_until_the_ttl_is_over(replica, monkeypatch) -> None:
    replica.set_policy(trustedKeys=[KEY.public], tenants=BY_HEADER)
    await replica.ready()
    assert (await replica.post(headers=HOPPED)).status == 401
    await push(replica, made(replica, 1, 1, limits_of={"peers": ("127.0.0.1",)}))
    assert (await replica.post(headers=HOPPED)).status == 200
    assert not any(b"x-penstock" in call.head.lower() for call in replica.engine.calls)
    await push(replica, made(replica, 1, 2, limits_of={"peers": ("127.0.0.2",)}))
    assert (await replica.post(headers=HOPPED)).status == 401
    await push(replica, made(replica, 1, 3, limits_of={"peers": ("127.0.0.1",)}))
    later = replica.limiter.admission.now() + 61
    monkeypatch.setattr(replica.limiter.admission, "now", lambda: later)
    replica.limiter.refresh_policy()
    assert (await replica.post(headers=HOPPED)).status == 401
