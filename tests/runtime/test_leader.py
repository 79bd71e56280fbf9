"""A leader whose parts end does not stay leader."""

import asyncio

import pytest

from penstock.reconcile.cache import Cache
from penstock.reconcile.discovery import Discovery
from penstock.reconcile.queue import WorkQueue
from penstock.runtime import leader as module
from penstock.runtime.leader import Leader
from penstock.runtime.metrics import Metrics
from penstock.runtime.settings import OperatorSettings
from penstock.runtime.supervision import TaskEnded


@pytest.fixture
async def leader(store):
    queue, cache = WorkQueue(), Cache()
    metrics = Metrics(queue, cache, leading=lambda: True, oldest_watch=lambda: 0.0)
    settings = OperatorSettings(image="penstock:1")
    leader = Leader(
        store,
        cache,
        queue,
        settings,
        Discovery(store),
        instance="x",
        metrics=metrics,
        may_push=lambda: True,
        epoch=lambda: 0,
    )
    await leader.prepare()
    return leader


async def test_it_works_until_it_is_cancelled(leader):
    task = asyncio.create_task(leader.run())
    done, _ = await asyncio.wait((task,), timeout=0.1)
    assert not done
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()


async def test_a_worker_that_ends_ends_the_leader(leader, monkeypatch):
    async def end(*_arguments, **_named):
        raise asyncio.CancelledError

    monkeypatch.setattr(module, "work", end)
    with pytest.raises(TaskEnded, match="worker-0"):
        await leader.run()


async def test_a_recorder_that_breaks_ends_the_leader(leader, monkeypatch):
    async def broken():
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(leader._recorder, "run", broken)
    with pytest.raises(ZeroDivisionError):
        await leader.run()
