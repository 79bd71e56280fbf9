"""Clients that leave at every moment: the books stay exact, and nothing is left behind.

Each client leaves in one of the ways there are: while its request waits, before the first token, within a stream,
before an answer that is no stream, within its own body, or by ending its sending side and then leaving.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import time
from collections import Counter
from contextlib import suppress

import uvloop

from bench.limiter.bed import Bed, bed
from bench.limiter.client import HOST, payload, request
from bench.limiter.replica import metrics, state
from bench.results import Row, at_most

CONCURRENCY = 48
AT_ONCE = 96  # half of them wait
SETTLE_SECONDS = 20.0
IDLE_SECONDS = 9.0  # connections to the engine are kept for half of this, and looked at as seldom
DESCRIPTORS_SLACK = 2  # a look at health may be under way
WAYS = (
    "waiting",
    "before the first token",
    "in a stream",
    "before an answer",
    "in its body",
    "half-closed",
    "not at all",
)
_RESET = struct.pack("ii", 1, 0)


def run(*, aborts: int) -> list[Row]:
    """Let so many clients leave."""
    # every permit is for all, so that the queue is what makes requests wait
    with bed(
        {"admission": {"queue": {"maxRequests": 1000}, "retryBudgetPercent": 100}}, concurrency=CONCURRENCY
    ) as where:
        before = where.descriptors()
        began = time.monotonic()
        ways = uvloop.run(_run(where, aborts))
        took = time.monotonic() - began
        left = _settled(where)
        after = _descriptors_at_rest(where, before)
        seen = metrics(where.where)
        books = state(where.where)
        engine = where.engine_counts()
    admitted = seen["penstock_admitted_total"]
    finished = sum(value for name, value in seen.items() if name.startswith("penstock_finished_total"))
    cancelled = seen["penstock_cancelled_total"]
    return [
        at_most("drift of the books after aborts", abs(float(books["drift"])), "", limit=0, bar="none"),
        at_most(
            "admitted - finished - cancelled - in flight",
            abs(admitted - finished - cancelled - seen["penstock_in_flight"]),
            "",
            limit=0,
            bar="none",
        ),
        at_most("requests, waiting or held after aborts", left, "", limit=0, bar="none"),
        at_most("requests the engine still works on", engine["active"], "", limit=0, bar="none"),
        at_most("descriptors more than before", max(0, after - before), "", limit=DESCRIPTORS_SLACK, bar="none"),
        Row(
            name="most requests the engine has seen at once, ends it learns of late included",
            value=engine["peak"],
            unit="",
        ),
        Row(name="clients that left", value=sum(ways.values()), unit=""),
        Row(name="clients that left per second", value=sum(ways.values()) / took, unit="/s"),
        Row(name="permits given", value=admitted, unit=""),
        Row(name="permits of clients that left", value=cancelled, unit=""),
    ]


async def _run(where: Bed, aborts: int) -> Counter[str]:
    chance = random.Random(1)
    turn = asyncio.Semaphore(AT_ONCE)
    ways: Counter[str] = Counter()

    async def one(way: str, number: int) -> None:
        async with turn:
            with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                await leave(where.where.port, way, number, chance)
            ways[way] += 1

    await asyncio.gather(*(one(WAYS[number % len(WAYS)], number) for number in range(aborts)))
    return ways


async def leave(port: int, way: str, number: int, chance: random.Random, *, key: str = "") -> None:
    """Send a request and leave in one of the `WAYS`."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        headers = {"Idempotency-Key": f"bench-{number}"} if chance.random() < 0.2 else {}
        slow = way == "before the first token"
        body = payload(
            first_ms=60 if slow else 3, tokens=20, every_ms=3, stream=way != "before an answer", user=str(number)
        )
        raw = request(body, key=key, headers=headers)
        if way == "in its body":
            writer.write(raw[: len(raw) - 20])
            await asyncio.sleep(chance.random() * 0.01)
            return
        writer.write(raw)
        if way == "waiting":
            await asyncio.sleep(chance.random() * 0.004)
        elif way == "in a stream":
            async with asyncio.timeout(5):
                await reader.readuntil(b'"delta"')
        elif way == "half-closed":
            writer.write_eof()
            await asyncio.sleep(chance.random() * 0.04)
        elif way == "not at all":
            async with asyncio.timeout(30):
                await reader.readuntil(b"0\r\n\r\n")
        else:
            await asyncio.sleep(chance.random() * 0.05)
    finally:
        if chance.random() < 0.5:
            sock = writer.get_extra_info("socket")
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        writer.transport.abort()


def _descriptors_at_rest(where: Bed, before: int) -> int:
    """Wait until there are no more than before, at most for as long as idle connections may last."""
    deadline = time.monotonic() + IDLE_SECONDS
    while (now := where.descriptors()) > before and time.monotonic() < deadline:
        time.sleep(0.2)
    return now


def _settled(where: Bed) -> float:
    """Wait until nothing is in work any more; return what is left."""
    names = ("penstock_in_flight", "penstock_client_connections", "penstock_request_body_bytes", "penstock_demand")
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        seen = metrics(where.where)
        # shed requests count as demand for a while, and this look itself is no client of the API port
        left = sum(seen[name] for name in names[:3])
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)
