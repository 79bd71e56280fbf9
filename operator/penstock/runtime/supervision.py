"""Tasks that have to go on: whoever depends on some waits here for the first to end, and it always ends as an error.

A task that ends unseen takes its work with it and leaves the process looking well. It may end without an exception, or
by a cancellation that nobody here has asked for, which libraries use inside and may let out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NoReturn


class TaskEnded(Exception):  # noqa: N818 - says what happened
    """A task that had to go on has ended without saying why."""


async def first_end(tasks: Sequence[asyncio.Task[Any]]) -> NoReturn:
    """Wait for the first of these tasks to end; when several have, the earliest in the order counts.

    Raises:
        TaskEnded: It has returned, or was cancelled.
        Exception: What the task has raised.
    """
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    ended = next(task for task in tasks if task in done)
    if not ended.cancelled():
        ended.result()
    raise TaskEnded(f"task {ended.get_name()} has ended, and nothing works without it")
