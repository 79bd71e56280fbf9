"""The queue's promises, in virtual time: no key twice at once, no change missed, first come first served."""

import asyncio
import random

import pytest

from penstock.reconcile.queue import QueueClosed, WorkQueue

pytestmark = pytest.mark.looptime


async def drain(queue: WorkQueue[str]) -> list[str]:
    """Serve everything that waits now."""
    served = []
    while queue.depth:
        key = await queue.get()
        served.append(key)
        queue.done(key)
    return served


async def test_keys_are_served_in_the_order_they_arrived():
    queue = WorkQueue[str]()
    for key in ("b", "a", "c"):
        queue.add(key)
    assert await drain(queue) == ["b", "a", "c"]


async def test_a_burst_on_one_key_is_served_once():
    queue = WorkQueue[str]()
    for _ in range(500):
        queue.add("a")
    assert queue.depth == 1
    assert await drain(queue) == ["a"]


async def test_a_key_is_never_processed_twice_at_once():
    queue = WorkQueue[str]()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 60)


async def test_a_change_during_processing_is_served_afterwards():
    queue = WorkQueue[str]()
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a")
    queue.done("a")
    assert await drain(queue) == ["a"]


async def test_a_busy_key_goes_behind_those_that_wait():
    queue = WorkQueue[str]()
    queue.add("busy")
    await queue.get()
    queue.add("busy")
    queue.add("other")
    queue.done("busy")
    assert await drain(queue) == ["other", "busy"]


async def test_get_waits_for_a_key(looptime):
    queue = WorkQueue[str]()
    asyncio.get_running_loop().call_later(7, queue.add, "a")
    assert await queue.get() == "a"
    assert looptime == 7


async def test_a_delayed_key_comes_when_it_is_due(looptime):
    queue = WorkQueue[str]()
    queue.add_after("late", 20)
    queue.add_after("early", 10)
    assert await queue.get() == "early"
    assert looptime == 10
    assert await queue.get() == "late"
    assert looptime == 20


@pytest.mark.parametrize("delays", [(10, 30), (30, 10)], ids=["earlier first", "later first"])
async def test_the_earliest_due_time_wins_and_the_other_is_forgotten(looptime, delays):
    queue = WorkQueue[str]()
    for delay in delays:
        queue.add_after("a", delay)
    assert await queue.get() == "a"
    assert looptime == 10
    queue.done("a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 100)


async def test_serving_a_key_clears_its_due_time():
    queue = WorkQueue[str]()
    queue.add_after("a", 10)
    queue.add("a")
    queue.done(await queue.get())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 100)


async def test_a_forgotten_key_is_not_due():
    queue = WorkQueue[str]()
    queue.add_after("a", 10)
    queue.forget("a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 100)


async def test_no_delay_means_now(looptime):
    queue = WorkQueue[str]()
    queue.add_after("a", 0)
    assert await queue.get() == "a"
    assert looptime == 0


async def test_closing_ends_every_waiter_and_refuses_new_keys():
    queue = WorkQueue[str]()
    waiters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.add_after("a", 1)
    queue.close()
    assert [type(result) for result in await asyncio.gather(*waiters, return_exceptions=True)] == [QueueClosed] * 3
    queue.add("a")
    assert queue.depth == 0
    await asyncio.sleep(5)
    with pytest.raises(QueueClosed):
        await queue.get()


async def test_the_oldest_wait_is_known(looptime):
    queue = WorkQueue[str]()
    assert queue.oldest_seconds() == 0
    queue.add("a")
    await asyncio.sleep(3)
    queue.add("b")
    assert queue.oldest_seconds() == 3


@pytest.mark.parametrize("seed", range(5))
async def test_many_workers_never_share_a_key_and_miss_no_change(seed):
    """Random adds and delays over few keys: after the dust has settled every key was served after its last add."""
    chance = random.Random(seed)
    queue = WorkQueue[str]()
    active: set[str] = set()
    version = dict.fromkeys("abcde", 0)
    seen = dict.fromkeys("abcde", 0)

    async def work() -> None:
        while True:
            key = await queue.get()
            assert key not in active
            active.add(key)
            seen[key] = version[key]
            await asyncio.sleep(chance.random())
            active.discard(key)
            queue.done(key)

    workers = [asyncio.create_task(work()) for _ in range(4)]
    for _ in range(300):
        key = chance.choice("abcde")
        version[key] += 1
        chance.choice([queue.add, lambda k: queue.add_after(k, chance.random())])(key)
        await asyncio.sleep(chance.random() / 10)
    await asyncio.sleep(60)
    assert seen == version
    assert queue.processing == 0
    queue.close()
    results = await asyncio.gather(*workers, return_exceptions=True)
    assert all(isinstance(result, QueueClosed) for result in results)
