"""Workers: take a key, reconcile it, and decide by the outcome when it comes back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from penstock.reconcile.backoff import Backoff
from penstock.reconcile.outcome import Done, Failed, Outcome, RequeueAfter
from penstock.reconcile.queue import QueueClosed, WorkQueue
from penstock.resources.objects import Key

RECONCILE_TIMEOUT_SECONDS = 120.0
"""Ends a reconcile that hangs in spite of the time-outs of its requests, so that no key is blocked for ever."""

Reconcile = Callable[[Key], Awaitable[Outcome]]
Observer = Callable[[str, float], None]
"""Told the outcome's name and the seconds of every reconcile."""

_log = logging.getLogger(__name__)


async def work(
    queue: WorkQueue[Key],
    reconcile: Reconcile,
    backoff: Backoff[Key],
    *,
    observe: Observer = lambda _name, _seconds: None,
) -> None:
    """Serve the queue until it is closed.

    An exception that no outcome stands for is a defect: it is logged with its traceback and counts as a failure, and
    the worker goes on.
    """
    while True:
        try:
            key = await queue.get()
        except QueueClosed:
            return
        started = time.monotonic()
        try:
            outcome = await _reconcile(reconcile, key)
            took = time.monotonic() - started
            _schedule(queue, backoff, key, outcome, took_seconds=took)
        finally:
            queue.done(key)
        observe(type(outcome).__name__, took)


async def _reconcile(reconcile: Reconcile, key: Key) -> Outcome:
    try:
        async with asyncio.timeout(RECONCILE_TIMEOUT_SECONDS):
            return await reconcile(key)
    except TimeoutError:
        return Failed(f"not finished after {RECONCILE_TIMEOUT_SECONDS:.0f} s")
    except Exception:
        _log.exception("reconcile of %s broke; please report this", key)
        return Failed("an unexpected error, see the log")


def _schedule(queue: WorkQueue[Key], backoff: Backoff[Key], key: Key, outcome: Outcome, *, took_seconds: float) -> None:
    match outcome:
        case Done():
            backoff.reset(key)
        case RequeueAfter(seconds):
            backoff.reset(key)
            queue.add_after(key, seconds)
        case Failed(reason, retry_after_seconds, reached):
            delay = max(backoff.failed(key, reached=reached), retry_after_seconds)
            fields = {"backend": str(key), "reason": reason, "took": round(took_seconds, 3)}
            _log.warning("%s: %s; next try in %.1f s", key, reason, delay, extra=fields)
            queue.add_after(key, delay)
