"""The push key is made once and never overwritten; its loss costs no pod."""

import base64

import pytest

from penstock.fleet.signing import SigningKey
from penstock.runtime.pushkey import SECRET_NAME, PushKeyUnusable, ensure


def secret(content):
    return {"metadata": {"name": SECRET_NAME, "namespace": "p"}, "data": {"private": content}}


def seed(letter):
    return base64.b64encode(letter * 32).decode()


def letter_n(count):
    return b"n" * count


async def test_it_is_made_when_there_is_none_with_its_public_half_for_people(store):
    key = await ensure(store, "p", random_bytes=letter_n)
    made = store.secrets[SECRET_NAME]
    assert made["metadata"]["namespace"] == "p"
    assert made["data"] == {"private": seed(b"n"), "public": key.public}
    assert key.id == SigningKey(b"n" * 32).id


async def test_an_existing_one_is_used_and_nothing_is_written(store):
    store.put(secret(seed(b"o")))
    assert (await ensure(store, "p", random_bytes=letter_n)).seed == b"o" * 32
    assert store.creates == 0


async def test_of_two_operators_the_second_uses_the_first_one_s(store):
    store.late = secret(seed(b"f"))
    assert (await ensure(store, "p", random_bytes=letter_n)).seed == b"f" * 32


@pytest.mark.parametrize(
    "content", ["", "not base64!", base64.b64encode(b"short").decode()], ids=["empty", "not base64", "too short"]
)
async def test_one_that_is_none_is_refused_and_left_alone(store, content):
    store.put(secret(content))
    with pytest.raises(PushKeyUnusable, match=r"p/penstock-push-key must hold 32 bytes under `private`"):
        await ensure(store, "p", random_bytes=letter_n)
    assert store.secrets[SECRET_NAME] == secret(content)
    assert store.creates == 0


async def test_nothing_of_it_is_shown(store):
    key = await ensure(store, "p", random_bytes=letter_n)
    assert seed(b"n") not in repr(key)
    assert "nnnn" not in repr(key)
