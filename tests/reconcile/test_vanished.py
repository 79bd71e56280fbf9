"""A name that was taken and is free again: the child is made by a later pass, never by an apply that could adopt."""

import pytest

from penstock.kube.errors import Conflict, NotFound
from penstock.kube.kinds import CONFIG_MAP
from penstock.reconcile.cache import Cache
from penstock.reconcile.children import Children
from penstock.reconcile.hindrance import Gone
from penstock.resources.objects import Key


class Fleeting:
    """An API server where the name is taken at every apply that must make, and free at every look."""

    def __init__(self):
        self.applied = []

    async def apply(self, obj):
        self.applied.append(obj)
        raise Conflict("exists", status=409, reason="Conflict", server_message="exists")

    async def get(self, kind, key):
        raise NotFound("gone", status=404, reason="NotFound", server_message="gone")


async def test_a_taken_name_that_is_free_at_the_next_look_is_left_to_a_later_pass():
    client = Fleeting()
    child = {"apiVersion": CONFIG_MAP.api_version, "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "n"}}
    with pytest.raises(Gone, match="gone again"):
        await Children(client, Cache())._write("uid", Key("n", "x"), child, None)
    assert [one["metadata"].get("resourceVersion") for one in client.applied] == ["1"]
