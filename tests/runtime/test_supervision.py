"""A task that has to go on never ends unseen, however it ends."""

import asyncio

import pytest

from penstock.runtime.supervision import TaskEnded, first_end


async def returns():
    return None


async def breaks():
    raise ZeroDivisionError


async def is_cancelled():
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("end", "error"),
    [
        pytest.param(returns, TaskEnded, id="returned"),
        pytest.param(breaks, ZeroDivisionError, id="failed"),
        pytest.param(is_cancelled, TaskEnded, id="cancelled by nobody here"),
    ],
)
async def test_the_end_of_a_task_is_an_error(end, error):
    staying = asyncio.create_task(asyncio.Event().wait())
    with pytest.raises(error):
        await first_end((staying, asyncio.create_task(end(), name="x")))
    staying.cancel()


async def test_the_error_names_the_task():
    with pytest.raises(TaskEnded, match="worker-7"):
        await first_end((asyncio.create_task(returns(), name="worker-7"),))
