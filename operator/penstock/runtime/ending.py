"""Ends the process in bounded time, whatever its tasks do.

asyncio ends by cancelling all tasks once and waiting for them. One that swallows its cancellation, as a library's may,
would be waited for without end: by then the Lease is given back and nothing listens any more, so neither another
replica nor a probe would tell. So tasks are cancelled again and again, and when that does not help, the process leaves.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Any, NoReturn

TRIES = 3
TRY_SECONDS = 1.0
EXIT_STUCK = 1

_log = logging.getLogger(__name__)


def end(runner: asyncio.Runner) -> None:
    """Close a runner whose work is done, or leave the process with `EXIT_STUCK` if its tasks do not end."""
    left = runner.run(cancel_all())
    if left:
        _leave(left, sys.exception())
    runner.close()


async def cancel_all(*, tries: int = TRIES, try_seconds: float = TRY_SECONDS) -> set[asyncio.Task[Any]]:
    """Cancel every other task of the loop, several times if needed, and return those that do not end."""
    for _ in range(tries):
        left = _others()
        if not left:
            break
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=try_seconds)
    return _others()


def _others() -> set[asyncio.Task[Any]]:
    current = asyncio.current_task()
    return {task for task in asyncio.all_tasks() if task is not current}


def _leave(left: set[asyncio.Task[Any]], error: BaseException | None) -> NoReturn:
    names = ", ".join(sorted(task.get_name() for task in left))
    why = f", after: {error}" if error is not None else ""
    _log.error("the process leaves without waiting any longer for tasks that do not end (%s)%s", names, why)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_STUCK)
