"""What follows from each outcome, in virtual time."""

import asyncio
import logging

import pytest

from penstock.reconcile.backoff import Backoff
from penstock.reconcile.outcome import Done, Failed, RequeueAfter
from penstock.reconcile.queue import WorkQueue
from penstock.reconcile.worker import RECONCILE_TIMEOUT_SECONDS, work
from penstock.resources.objects import Key

pytestmark = pytest.mark.looptime

KEY = Key("n", "x")


async def times(outcomes, *, until):
    """Serve one key with these outcomes in turn and return when each pass began."""
    queue = WorkQueue()
    began = []
    left = list(outcomes)

    async def reconcile(key):
        assert key == KEY
        began.append(asyncio.get_running_loop().time())
        outcome = left.pop(0) if left else Done()
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is None:
            await asyncio.Event().wait()
        return outcome

    worker = asyncio.create_task(work(queue, reconcile, Backoff(random=lambda: 0.5)))
    queue.add(KEY)
    await asyncio.sleep(until)
    queue.close()
    await worker
    return began


async def test_done_is_not_looked_at_again():
    assert await times([Done()], until=1000) == [0]


async def test_requeue_waits_as_asked():
    assert await times([RequeueAfter(7), RequeueAfter(7)], until=100) == [0, 7, 14]


async def test_failures_wait_longer_and_longer_until_a_success():
    outcomes = [Failed("a"), Failed("b"), Failed("c"), Done()]
    assert await times(outcomes, until=100) == [0, 0.5, 1.5, 3.5]


async def test_a_success_resets_the_delays():
    outcomes = [Failed("a"), Failed("b"), RequeueAfter(10), Failed("c"), Done()]
    assert await times(outcomes, until=100) == [0, 0.5, 1.5, 11.5, 12]


async def test_delays_start_over_as_long_as_each_pass_gets_further():
    outcomes = [Failed("a", reached=step) for step in range(1, 9)]
    assert await times(outcomes, until=100) == [0.5 * number for number in range(9)]


async def test_getting_no_further_than_before_waits_longer_and_longer():
    outcomes = [Failed("a", reached=step) for step in (3, 1, 3, 2, 3)]
    assert await times(outcomes, until=100) == [0, 0.5, 1.5, 3.5, 7.5, 15.5]


async def test_the_api_server_s_own_delay_is_respected():
    assert await times([Failed("throttled", retry_after_seconds=20)], until=100) == [0, 20]


async def test_a_defect_is_logged_and_tried_again(caplog):
    assert await times([ZeroDivisionError("boom")], until=100) == [0, 0.5]
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert "n/x" in record.getMessage()
    assert record.exc_info is not None


async def test_a_pass_that_hangs_is_ended():
    assert await times([None], until=200) == [0, RECONCILE_TIMEOUT_SECONDS + 0.5]


async def test_outcomes_are_observed():
    queue, seen = WorkQueue(), []
    worker = asyncio.create_task(
        work(
            queue, lambda _key: asyncio.sleep(0, Done()), Backoff(random=lambda: 0.5), observe=lambda *a: seen.append(a)
        )
    )
    queue.add(KEY)
    await asyncio.sleep(1)
    queue.close()
    await worker
    assert [name for name, _seconds in seen] == ["Done"]
