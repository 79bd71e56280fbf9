"""The drain key is 32 bytes in a Secret of its own; how that is kept is tested with `keysecret`."""

import base64

import pytest

from penstock.runtime.drainkey import SECRET_NAME, ensure
from penstock.runtime.keysecret import KeyUnusable


async def test_it_is_32_bytes_under_its_name(store):
    assert await ensure(store, "p", random_bytes=lambda count: b"n" * count) == b"n" * 32
    assert SECRET_NAME == "penstock-drain-key"
    assert store.secrets[SECRET_NAME]["data"] == {"key": base64.b64encode(b"n" * 32).decode()}


async def test_what_another_one_costs_is_said(store):
    store.put({"metadata": {"name": "penstock-drain-key", "namespace": "p"}, "data": {}})
    with pytest.raises(KeyUnusable, match=r"p/penstock-drain-key must hold 32 bytes under `key`.*replicas are rolled"):
        await ensure(store, "p", random_bytes=lambda count: b"n" * count)
