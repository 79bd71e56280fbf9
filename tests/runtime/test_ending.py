"""The process ends in bounded time, whatever its tasks do."""

import asyncio
import contextlib
import subprocess
import sys

import pytest

from penstock.runtime import ending


async def deaf(times=1_000_000):
    """Swallow a number of cancellations."""
    for _ in range(times):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


@pytest.mark.parametrize(("times", "ends"), [(1, True), (2, True), (10, False)], ids=["once", "twice", "ever again"])
async def test_a_task_that_swallows_its_cancellation_is_cancelled_again(times, ends):
    task = asyncio.create_task(deaf(times))
    await asyncio.sleep(0)
    left = await ending.cancel_all(tries=3, try_seconds=0.05)
    assert left == (set() if ends else {task})
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)


SCRIPT = """
import asyncio, logging
from penstock.runtime import ending

logging.basicConfig()

async def deaf():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

async def main():
    main.task = asyncio.create_task({task}, name="a deaf task")
    await asyncio.sleep(0)

runner = asyncio.Runner()
try:
    runner.run(main())
finally:
    ending.end(runner)
"""


def ended(task):
    script = SCRIPT.format(task=task)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)


def test_a_process_whose_tasks_end_says_nothing():
    process = ended("asyncio.sleep(3600)")
    assert (process.returncode, process.stderr) == (0, "")


def test_a_process_with_a_task_that_never_ends_ends_all_the_same_and_says_so():
    process = ended("deaf()")
    assert process.returncode == ending.EXIT_STUCK
    assert "a deaf task" in process.stderr
    assert "Traceback" not in process.stderr
