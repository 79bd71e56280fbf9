"""The drain key is made once and never overwritten."""

import base64

import pytest

from penstock.runtime.drainkey import SECRET_NAME, DrainKeyUnusable, ensure


def secret(content):
    return {"metadata": {"name": "penstock-drain-key", "namespace": "p"}, "data": {"key": content}}


def key(letter):
    return base64.b64encode(letter * 32).decode()


async def test_it_is_made_when_there_is_none(store):
    assert await ensure(store, "p", random_bytes=lambda count: b"n" * count) == b"n" * 32
    assert store.secrets[SECRET_NAME]["metadata"]["namespace"] == "p"
    assert store.secrets[SECRET_NAME]["data"] == {"key": key(b"n")}


async def test_an_existing_one_is_used_and_nothing_is_written(store):
    store.put(secret(key(b"o")))
    assert await ensure(store, "p", random_bytes=lambda count: b"n" * count) == b"o" * 32
    assert store.creates == 0


async def test_of_two_operators_the_second_uses_the_first_one_s(store):
    store.late = secret(key(b"f"))
    assert await ensure(store, "p", random_bytes=lambda count: b"n" * count) == b"f" * 32


@pytest.mark.parametrize(
    "content", ["", "not base64!", base64.b64encode(b"short").decode()], ids=["empty", "not base64", "too short"]
)
async def test_one_that_is_none_is_refused_and_left_alone(store, content):
    store.put(secret(content))
    with pytest.raises(DrainKeyUnusable, match=r"p/penstock-drain-key must hold 32 bytes"):
        await ensure(store, "p", random_bytes=lambda count: b"n" * count)
    assert store.secrets[SECRET_NAME] == secret(content)
    assert store.creates == 0
