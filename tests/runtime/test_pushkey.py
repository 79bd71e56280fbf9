"""The push key is a key pair in a Secret of its own; how that is kept is tested with `keysecret`."""

import base64

import pytest

from penstock.fleet.signing import SigningKey
from penstock.runtime.keysecret import KeyUnusable
from penstock.runtime.pushkey import SECRET_NAME, ensure


def letter_n(count):
    return b"n" * count


async def test_it_is_kept_with_its_public_half_for_people(store):
    key = await ensure(store, "p", random_bytes=letter_n)
    assert SECRET_NAME == "penstock-push-key"
    assert store.secrets[SECRET_NAME]["data"] == {
        "private": base64.b64encode(b"n" * 32).decode(),
        "public": key.public,
    }
    assert key.id == SigningKey(b"n" * 32).id


async def test_what_another_one_costs_is_said(store):
    store.put({"metadata": {"name": "penstock-push-key", "namespace": "p"}, "data": {}})
    with pytest.raises(KeyUnusable, match=r"p/penstock-push-key must hold 32 bytes under `private`.*no replica is"):
        await ensure(store, "p", random_bytes=letter_n)


async def test_nothing_of_it_is_shown(store):
    key = await ensure(store, "p", random_bytes=letter_n)
    assert base64.b64encode(b"n" * 32).decode() not in repr(key)
    assert "nnnn" not in repr(key)
