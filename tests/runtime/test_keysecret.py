"""A key of the installation is made once and never overwritten."""

import base64

import pytest

from penstock.kube.errors import Unavailable
from penstock.resources.labels import MANAGED_BY
from penstock.runtime.keysecret import KeySecret, KeyUnusable

SECRET = KeySecret(name="a-key", field="half", size_bytes=4, loss="that costs something")


def secret(data):
    return {"metadata": {"name": "a-key", "namespace": "p"}, "data": data}


def of(letter):
    return {"half": base64.b64encode(letter * 4).decode()}


def letter_n(count):
    return b"n" * count


async def test_it_is_made_when_there_is_none_with_what_is_shown_beside_it(store):
    shown = KeySecret(
        name="a-key", field="half", size_bytes=4, loss="", shown=lambda key: {"other": key.decode().upper()}
    )
    assert await shown.ensure(store, "p", random_bytes=letter_n) == b"nnnn"
    made = store.secrets["a-key"]
    assert made["data"] == {**of(b"n"), "other": "NNNN"}
    assert (made["metadata"]["namespace"], list(made["metadata"]["labels"])) == ("p", [MANAGED_BY])


async def test_an_existing_one_is_used_and_nothing_is_written(store):
    store.put(secret(of(b"o")))
    assert await SECRET.ensure(store, "p", random_bytes=letter_n) == b"oooo"
    assert store.creates == 0


async def test_of_two_operators_the_second_uses_the_first_one_s(store):
    store.late = secret(of(b"f"))
    assert await SECRET.ensure(store, "p", random_bytes=letter_n) == b"ffff"


@pytest.mark.parametrize(
    "data",
    [{"half": ""}, {"half": "not base64!"}, {"half": base64.b64encode(b"no").decode()}, {"other": "bm5ubg=="}, None],
    ids=["empty", "not base64", "too short", "another field", "no data"],
)
async def test_one_that_is_none_is_refused_and_left_alone(store, data):
    store.put(secret(data))
    with pytest.raises(KeyUnusable, match=r"Secret p/a-key must hold 4 bytes under `half`; .*: that costs something"):
        await SECRET.ensure(store, "p", random_bytes=letter_n)
    assert store.secrets["a-key"] == secret(data)
    assert store.creates == 0


async def test_when_it_cannot_be_looked_for_none_is_made(store):
    store.down = True
    with pytest.raises(Unavailable):
        await SECRET.ensure(store, "p", random_bytes=letter_n)
    assert store.creates == 0
