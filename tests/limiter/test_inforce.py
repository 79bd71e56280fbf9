"""What is in force where a policy asks for what only a new pod can have."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.api.replica import ReplicaSettings

KEYS = {"identifyBy": "ApiKey"}
LIMITED = {"rateLimits": [{"name": "few", "limit": 5}]}


def write(settings: ReplicaSettings, *, tenants: object = None, admission: object = None) -> None:
    parts = {"tenants": tenants, "admission": admission}
    Path(settings.policy_path).write_text(json.dumps({name: part for name, part in parts.items() if part is not None}))


async def test_a_pod_without_keys_lets_callers_in_as_before_until_it_is_replaced(rig, settings) -> None:
    write(settings, tenants=KEYS, admission=LIMITED)
    rig.limiter.refresh_policy()
    reply = await rig.post(headers="Authorization: Bearer sk-good\r\n")
    assert reply.status == 200
    assert reply.header("x-ratelimit-limit-requests") == "5"  # the rest of the policy is in force
    assert rig.limiter.state()["policy"]["waitsForKeys"]


async def test_it_follows_what_asks_for_no_keys_again(rig, settings) -> None:
    write(settings, tenants=KEYS)
    rig.limiter.refresh_policy()
    write(settings, tenants={**KEYS, "default": {}})
    rig.limiter.refresh_policy()
    assert not rig.limiter.state()["policy"]["waitsForKeys"]
    assert (await rig.post()).status == 200


async def test_a_pod_that_never_had_another_policy_lets_nobody_in(open_rig) -> None:
    async with open_rig(tenants=KEYS) as rig:
        assert (await rig.post(headers="Authorization: Bearer sk-good\r\n")).status == 401


async def test_a_pod_with_keys_asks_for_them_at_once(open_rig, settings, tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "alice").write_text("sk-alice\n")
    async with open_rig(settings_of={"tenants_path": str(folder)}) as rig:
        assert (await rig.post()).status == 200
        write(settings, tenants=KEYS)
        rig.limiter.refresh_policy()
        assert (await rig.post()).status == 401
        assert (await rig.post(headers="Authorization: Bearer sk-alice\r\n")).status == 200
