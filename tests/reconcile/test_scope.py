"""Namespaces that cannot be read are left alone, and the others served, until they can be read again."""

import pytest

from penstock.kube.errors import Forbidden, Unavailable
from penstock.reconcile.scope import Scope


class Server:
    """Refuses to read in some namespaces."""

    def __init__(self):
        self.refused = set()
        self.down = False

    async def read(self, path):
        if self.down:
            raise Unavailable("down")
        if any(f"/namespaces/{name}/" in path for name in self.refused):
            raise Forbidden("read", status=403, reason="Forbidden", server_message="cannot list")
        return {"items": []}


@pytest.fixture
def server():
    return Server()


async def test_everywhere_needs_no_question(server):
    server.down = True
    scope = Scope(server, ())
    assert not await scope.refresh()
    assert scope.namespaces == ()


async def test_a_namespace_that_is_gone_is_left_out_until_it_is_back(server):
    scope = Scope(server, ("a", "b"))
    assert not await scope.refresh()
    server.refused = {"a"}
    assert await scope.refresh()
    assert scope.namespaces == ("b",)
    assert not await scope.refresh()
    server.refused = set()
    assert await scope.refresh()
    assert scope.namespaces == ("a", "b")


async def test_without_a_single_namespace_a_right_is_missing(server):
    scope = Scope(server, ("a", "b"))
    server.refused = {"a", "b"}
    with pytest.raises(Forbidden):
        await scope.refresh()
    # Never nothing: that would mean everywhere.
    assert scope.namespaces == ("a", "b")


async def test_an_api_server_that_is_away_changes_nothing(server):
    scope = Scope(server, ("a", "b"))
    server.down = True
    with pytest.raises(Unavailable):
        await scope.refresh()
    assert scope.namespaces == ("a", "b")
