"""What is watched, and when watching begins anew; the watches themselves are replaced."""

import asyncio
import contextlib

import pytest

from penstock.kube.errors import Forbidden, NotFound
from penstock.kube.kinds import LLM_BACKEND, POD_MONITOR
from penstock.reconcile.cache import Cache
from penstock.reconcile.queue import WorkQueue
from penstock.resources.objects import Key
from penstock.runtime import keeper as module
from penstock.runtime.keeper import Keeper
from penstock.runtime.settings import OperatorSettings


class Server:
    """Holds one backend in each namespace and one PodMonitor.

    Attributes:
        refused: Namespaces in which every request is refused.
        monitors: Whether PodMonitors are served.
    """

    def __init__(self):
        self.refused = set()
        self.monitors = True

    async def read(self, path):
        self._check(path)
        if path == "/version":
            return {"minor": "34"}
        if path.startswith("/apis/monitoring"):
            if not self.monitors:
                raise NotFound("read", status=404, reason="", server_message="no")
            return {"resources": [{"name": "podmonitors"}]}
        return {"items": []}

    async def list(self, kind, *, namespace=None, labels=None):
        self._check(f"/namespaces/{namespace}/")
        if kind not in (LLM_BACKEND, POD_MONITOR):
            return []
        metadata = {"name": "smol", "namespace": namespace, "uid": "u", "resourceVersion": "7"}
        return [{"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}]

    def _check(self, path):
        if any(f"/namespaces/{name}/" in path for name in self.refused):
            raise Forbidden("list", status=403, reason="Forbidden", server_message="cannot list")


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def watched(monkeypatch):
    """The namespaces and kinds of each time that watching has begun; it ends only when cancelled."""
    begun = []

    async def run(_configuration, _cache, _queue, *, namespaces, kinds, streams, on_started):
        streams.expect(["/x"])
        begun.append((namespaces, kinds))
        await asyncio.Event().wait()

    monkeypatch.setattr(module.source, "run", run)
    monkeypatch.setattr(module, "FIRST_RESTART_SECONDS", 0.01)
    return begun


@contextlib.asynccontextmanager
async def running(server, cache):
    settings = OperatorSettings(image="penstock:1", watch_namespaces=("a", "b"), discovery_seconds=0.1)
    keeper = Keeper(server, None, cache, WorkQueue(), settings, on_started=lambda: None)
    await keeper.fill()
    task = asyncio.create_task(keeper.run())
    yield keeper
    task.cancel()
    await asyncio.wait((task,))


async def until(holds):
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - the keeper's own loops are what is waited for
            await asyncio.sleep(0.01)


async def test_a_namespace_that_goes_is_forgotten_and_the_others_are_still_watched(server, watched):
    cache = Cache()
    async with running(server, cache):
        await until(lambda: [names for names, _ in watched] == [("a", "b")])
        server.refused = {"a"}
        await until(lambda: [names for names, _ in watched] == [("a", "b"), ("b",)])
        assert set(cache.all(LLM_BACKEND)) == {Key("b", "smol")}
        server.refused = set()
        await until(lambda: watched[-1][0] == ("a", "b"))


async def test_it_starts_without_a_namespace_that_is_gone(server, watched):
    server.refused = {"a"}
    async with running(server, Cache()):
        await until(lambda: [names for names, _ in watched] == [("b",)])


async def test_what_is_forgotten_with_its_kind_is_taken_in_again_as_it_was(server, watched):
    cache = Cache()
    async with running(server, cache) as keeper:
        server.monitors = False
        await until(lambda: not cache.all(POD_MONITOR) and POD_MONITOR not in watched[-1][1])
        server.monitors = True
        await until(lambda: POD_MONITOR in watched[-1][1])
        keeper._listed(POD_MONITOR.path("a"))
        await until(lambda: Key("a", "smol") in cache.all(POD_MONITOR))


async def test_a_watch_that_is_dead_begins_again(server, watched, monkeypatch):
    monkeypatch.setattr(module, "DEAD_SECONDS", 0.05)
    monkeypatch.setattr(module, "DEAD_CHECK_SECONDS", 0.01)
    async with running(server, Cache()):
        await until(lambda: len(watched) > 2)


async def test_watching_that_breaks_in_any_way_begins_again(server, watched, monkeypatch):
    failing = [ZeroDivisionError("boom"), asyncio.CancelledError(), module.source.WatchFailed("refused")]
    run = module.source.run

    async def fail_first(*arguments, **named):
        if failing:
            raise failing.pop()
        await run(*arguments, **named)

    monkeypatch.setattr(module.source, "run", fail_first)
    async with running(server, Cache()):
        await until(lambda: len(watched) == 1)
