"""Keys that somebody deletes come back as they were; others are told once and left alone."""

import asyncio
import base64
from contextlib import asynccontextmanager

import pytest

from penstock.runtime import drainkey, pushkey
from penstock.runtime.installationkeys import InstallationKeys

pytestmark = pytest.mark.looptime
SECRETS = [drainkey.SECRET_NAME, pushkey.SECRET_NAME]


@asynccontextmanager
async def keeping(store):
    keys = InstallationKeys(store, "p", interval_seconds=10)
    await keys.prepare()
    task = asyncio.create_task(keys.keep())
    try:
        yield keys
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def test_both_are_made_at_the_start_and_read_by_the_next(store):
    async with keeping(store) as first:
        assert set(store.secrets) == set(SECRETS)
        async with keeping(store) as second:
            assert (second.drain, second.push.id) == (first.drain, first.push.id)
    assert store.creates == 2


@pytest.mark.parametrize("name", SECRETS)
async def test_a_deleted_one_comes_back_as_it_was(store, name):
    async with keeping(store):
        kept = store.secrets.pop(name)
        await asyncio.sleep(11)
        assert store.secrets[name] == kept


async def test_one_that_is_lost_while_nobody_runs_is_made_anew(store):
    async with keeping(store) as before:
        pass
    del store.secrets[pushkey.SECRET_NAME]
    async with keeping(store) as after:
        assert after.push.id != before.push.id
        assert after.drain == before.drain


@pytest.mark.parametrize(("name", "field"), [(SECRETS[0], "key"), (SECRETS[1], "private")])
async def test_another_is_left_alone_and_told_once(store, caplog, name, field):
    async with keeping(store) as keys:
        before = keys.drain, keys.push.id
        store.secrets[name] = {**store.secrets[name], "data": {field: base64.b64encode(b"x" * 32).decode()}}
        await asyncio.sleep(35)
        assert (keys.drain, keys.push.id) == before
    assert caplog.text.count(f"p/{name} holds another key") == 1
    assert "eHh4" not in caplog.text


async def test_an_api_server_that_is_away_ends_nothing(store, caplog):
    async with keeping(store):
        store.down = True
        await asyncio.sleep(25)
        store.down = False
        del store.secrets[SECRETS[0]]
        await asyncio.sleep(11)
        assert SECRETS[0] in store.secrets
    assert "are tried again later" in caplog.text
