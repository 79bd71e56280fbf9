"""An engine with slots never gets a request beyond them, whoever leaves and whenever.

llama-server keeps a request that it has no slot for, and nobody can take it back from there. A slot whose client has
left stays taken for a while, and only the server's metrics show when it is free: the scripted engine does the same. The
clients are those of the aborts (`aborts.leave`), and as many of them wait as have a slot and more.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress

import uvloop

from bench.limiter.aborts import WAYS, leave
from bench.limiter.bed import Bed, bed
from bench.limiter.replica import metrics
from bench.results import Row, at_most

SLOTS = 4
AT_ONCE = 16
SETTLE_SECONDS = 40.0


def run(*, seconds: float) -> list[Row]:
    """Let clients come and leave for so long."""
    with bed({"admission": {"retryBudgetPercent": 100}}, slots=SLOTS) as where:
        sent = uvloop.run(_run(where, seconds))
        left = _settled(where)
        counts = where.engine_counts()
        seen = metrics(where.where)
    return [
        at_most("llama.cpp: requests at the engine beyond its slots", counts["peak"] - SLOTS, "", limit=0, bar="none"),
        at_most("llama.cpp: permits that never came back", left, "", limit=0, bar="none"),
        Row(name="llama.cpp: most requests at the engine at once", value=counts["peak"], unit=f"of {SLOTS} slots"),
        Row(name="llama.cpp: clients, most of which left", value=sent, unit=""),
        Row(name="llama.cpp: requests that reached the engine", value=counts["started"], unit=""),
        Row(name="llama.cpp: permits of clients that left", value=seen["penstock_cancelled_total"], unit=""),
    ]


async def _run(where: Bed, seconds: float) -> int:
    chance = random.Random(2)
    deadline = time.monotonic() + seconds
    sent = 0

    async def some() -> None:
        nonlocal sent
        while time.monotonic() < deadline:
            number, sent = sent, sent + 1
            with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                await leave(where.where.port, WAYS[number % len(WAYS)], number, chance)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    return sent


def _settled(where: Bed) -> float:
    deadline = time.monotonic() + SETTLE_SECONDS
    while (left := metrics(where.where)["penstock_in_flight"]) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left
