"""`python -m bench.limiter.soak`: an hour of everything at once, and whether anything grows.

Streams, small requests, clients that leave at every moment, uploads, refusals and repeated keys, while the policy file
changes and the operator pushes. What the limiter holds is looked at all the time; at the end the traffic stops, and
what is left is compared with what there was at first. Memory may grow while caches fill, so it is judged by the second
half of the time.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import uvloop

from bench import results, turn
from bench.limiter.aborts import WAYS, leave
from bench.limiter.bed import Bed, bed, rate_limit
from bench.limiter.client import Connections, payload, request
from bench.limiter.replica import HOST, metrics, state
from bench.relay.processes import BenchError
from bench.results import Row, at_most
from e2e.cache import say
from penstock.api.push import Decision, PushedLimits, PushResult
from penstock.fleet.push import Pusher, Target
from penstock.fleet.signing import SigningKey

NAME = "soak-limiter"
MINUTES = 60.0
LOOK_SECONDS = 5.0
RELOAD_SECONDS = 7.0
PUSH_SECONDS = 3.0
TELL_SECONDS = 60.0
REST_SECONDS = 10.0  # idle connections to the engine and remembered keys end in this time
SETTLE_SECONDS = 40.0
CONCURRENCY = 32
LEAVING, STREAMING, ASKING, REFUSED, UPLOADING, REPEATING = 12, 40, 4, 4, 1, 2
UPLOAD_BYTES = 4 * 1024 * 1024
MEBIBYTE = 1024 * 1024
GROWTH_MEBIBYTES = 8.0
DESCRIPTORS_SLACK = 4
KEY = SigningKey(b"soak" * 8)
KEYS = {"steady": "sk-steady", "flood": "sk-flood"}

Worker = Callable[[], Awaitable[None]]


@dataclass
class Watched:
    """What was seen while it ran.

    Attributes:
        memory: Resident MiB, with the time of each look.
        descriptors: At each look.
        drift: The largest difference between what was admitted and what became of it.
        done: How often each kind of traffic came round.
        pushes: By their result.
    """

    memory: list[tuple[float, float]] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    drift: float = 0.0
    done: Counter[str] = field(default_factory=Counter)
    pushes: Counter[str] = field(default_factory=Counter)
    cut: int = 0
    reloads: int = 0


def run(*, minutes: float) -> list[Row]:
    """Keep a limiter busy for so long, then look at what is left of it."""
    with bed(_policy(0), concurrency=CONCURRENCY, tenants=KEYS) as where:
        before = where.descriptors()
        watched = uvloop.run(_run(where, minutes * 60))
        left = _settled(where)
        time.sleep(REST_SECONDS)
        where.limiter.check_alive()
        after, books, seen = where.descriptors(), state(where.where), metrics(where.where)
        engine = where.engine_counts()
        log = where.limiter.log.read_text(errors="replace")
    finished = sum(value for name, value in seen.items() if name.startswith("penstock_finished_total"))
    lost = seen["penstock_admitted_total"] - finished - seen["penstock_cancelled_total"] - seen["penstock_in_flight"]
    troubles = sum(log.count(word) for word in ("Traceback", "level=error", " ERROR "))
    return [
        at_most("memory grown in the second half", growth(watched), "MiB", limit=GROWTH_MEBIBYTES, bar="at most 8 MiB"),
        at_most("descriptors more than before", after - before, "", limit=DESCRIPTORS_SLACK, bar="none to speak of"),
        at_most("drift, at the worst look", max(watched.drift, abs(float(books["drift"]))), "", limit=0, bar="none"),
        at_most("admitted - finished - cancelled - in flight", abs(lost), "", limit=0, bar="none"),
        at_most("requests, connections and body bytes left", left, "", limit=0, bar="none"),
        at_most("requests the engine still works on", engine["active"], "", limit=0, bar="none"),
        at_most("streams cut", watched.cut, "", limit=0, bar="none"),
        at_most("pushes not applied", _not_applied(watched), "", limit=0, bar="none"),
        at_most("errors in the limiter's log", troubles, "", limit=0, bar="none"),
        Row(name="memory at the end", value=watched.memory[-1][1], unit="MiB"),
        Row(name="most descriptors", value=max(watched.descriptors), unit=""),
        Row(name="requests admitted", value=seen["penstock_admitted_total"], unit=""),
        Row(name="requests cancelled", value=seen["penstock_cancelled_total"], unit=""),
        Row(name="policies written", value=watched.reloads, unit=""),
        Row(name="pushes applied", value=watched.pushes[PushResult.APPLIED], unit=""),
        *(Row(name=f"done: {what}", value=count, unit="") for what, count in sorted(watched.done.items())),
    ]


def _policy(number: int) -> dict[str, object]:
    """Return a policy that differs from the one before, in what may change while requests run."""
    quota = rate_limit("tight", "Requests", "FixedWindow", 1, windowSeconds=86400)
    del quota["per"]
    quotas = [
        rate_limit("tokens", "Tokens", ("SlidingWindow", "TokenBucket")[number % 2], 10**9 + number),
        rate_limit("open", "OpenConnections", "TokenBucket", 100_000),
    ]
    return {
        "trustedKeys": [KEY.public],
        "admission": {
            "retryBudgetPercent": 100,
            "concurrency": {"initial": (CONCURRENCY, CONCURRENCY // 2)[number % 3 == 1]},
            "queue": {"maxRequests": 400 + number % 5},
            "rateLimits": quotas,
        },
        "tenants": {
            "identifyBy": "ApiKey",
            "keysSecretRef": {"name": "keys"},
            "default": {"weight": 1 + number % 3},
            "classes": [{"name": "flood", "tenants": ["flood"], "rateLimits": [quota]}],
        },
    }


def growth(watched: Watched) -> float:
    """Return how much more memory the last quarter took than the third one, by their medians."""
    last = watched.memory[-1][0]
    third, fourth = (
        [size for at, size in watched.memory if begin * last <= at <= end * last]
        for begin, end in ((0.5, 0.75), (0.75, 1))
    )
    return statistics.median(fourth) - statistics.median(third) if third and fourth else 0.0


def _not_applied(watched: Watched) -> int:
    return sum(count for result, count in watched.pushes.items() if result != PushResult.APPLIED)


async def _run(where: Bed, seconds: float) -> Watched:
    watched = Watched()
    ended = asyncio.Event()
    port = where.where.port
    connections = Connections(port)
    chance = random.Random(3)
    numbers = itertools.count()

    async def streaming() -> None:
        raw = request(payload(tokens=chance.randint(5, 60), every_ms=20, user=str(next(numbers))), key=KEYS["steady"])
        seen = await connections.ask(raw)
        watched.cut += seen.status == 200 and not seen.whole

    async def asking() -> None:
        await connections.ask(request(payload(stream=False, pad="水" * chance.randint(1, 2000)), key=KEYS["steady"]))
        await asyncio.sleep(0.02)

    async def refused() -> None:
        await connections.ask(request(payload(stream=False), key=KEYS["flood"]))
        await asyncio.sleep(0.01)

    async def uploading() -> None:
        body = payload(stream=False, pad="x" * UPLOAD_BYTES + chance.choice(("", "\U0001f6b0")))
        await connections.ask(request(body, key=KEYS["steady"]))
        await asyncio.sleep(0.5)

    async def repeating() -> None:
        raw = request(
            payload(tokens=10, every_ms=10, user="same"),
            key=KEYS["steady"],
            headers={"Idempotency-Key": f"soak-{next(numbers)}"},
        )
        await asyncio.gather(connections.ask(raw), connections.ask(raw))

    async def leaving() -> None:
        number = next(numbers)
        with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            await leave(port, WAYS[number % len(WAYS)], number, chance, key=KEYS["steady"])
        await asyncio.sleep(0.02)

    async def again(what: str, worker: Worker) -> None:
        while not ended.is_set():
            await worker()
            watched.done[what] += 1

    crowd: dict[str, tuple[int, Worker]] = {
        "streams": (STREAMING, streaming),
        "small requests": (ASKING, asking),
        "refusals": (REFUSED, refused),
        "uploads": (UPLOADING, uploading),
        "repeated keys": (REPEATING, repeating),
        "clients that leave": (LEAVING, leaving),
    }
    tasks = [asyncio.create_task(again(what, worker)) for what, (count, worker) in crowd.items() for _ in range(count)]
    tasks += [asyncio.create_task(each) for each in (_reload(where, watched, ended), _push(where, watched, ended))]
    try:
        await _look(where, watched, seconds)
    finally:
        ended.set()
    await asyncio.gather(*tasks)
    connections.close()
    return watched


async def _look(where: Bed, watched: Watched, seconds: float) -> None:
    began = time.monotonic()
    told = 0.0
    while (at := time.monotonic() - began) < seconds:
        where.limiter.check_alive()
        books = await asyncio.to_thread(state, where.where)
        watched.drift = max(watched.drift, abs(float(books["drift"])))
        watched.memory.append((at, where.limiter.resident_bytes() / MEBIBYTE))
        watched.descriptors.append(where.descriptors())
        if at - told >= TELL_SECONDS:
            told = at
            say(
                f"{at / 60:.0f} min: {watched.memory[-1][1]:.1f} MiB, {watched.descriptors[-1]} descriptors, "
                f"drift {watched.drift:g}, {sum(watched.done.values())} done"
            )
        await asyncio.sleep(LOOK_SECONDS)


async def _reload(where: Bed, watched: Watched, ended: asyncio.Event) -> None:
    while not await _waited(ended, RELOAD_SECONDS):
        watched.reloads += 1
        where.where.write_policy(_policy(watched.reloads))


async def _push(where: Bed, watched: Watched, ended: asyncio.Event) -> None:
    target = Target(
        backend_uid=where.where.backend_uid,
        pod_uid=where.where.pod_uid,
        address=HOST,
        port=where.where.admin_port,
    )
    async with aiohttp.ClientSession() as session:
        pusher = Pusher(KEY, session, may_push=lambda: True, epoch=lambda: 1)
        for number in itertools.count():
            rate = (None, 500.0, 60.0)[number % 3]
            limits = PushedLimits(share=1 / (1 + number % 3), rate_per_second=rate, decision=Decision(rule="soak"))
            watched.pushes[await pusher.push(target, limits, ttl_seconds=60)] += 1
            if await _waited(ended, PUSH_SECONDS):
                break


async def _waited(ended: asyncio.Event, seconds: float) -> bool:
    """Wait, and return whether it has ended."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await ended.wait()
    return ended.is_set()


def _settled(where: Bed) -> float:
    """Wait until nothing is in work any more; return what is left."""
    names = ("penstock_in_flight", "penstock_client_connections", "penstock_request_body_bytes")
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        seen = metrics(where.where)
        left = sum(seen[name] for name in names)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.limiter.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"how long (default {MINUTES:.0f})")
    parser.add_argument("--output", type=Path, help=f"where to write the rows (default results/{NAME}.json)")
    asked = parser.parse_args(arguments)
    try:
        with turn.only_one():
            rows = run(minutes=asked.minutes)
    except BenchError as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 1
    path = results.write(NAME, ["python", "-m", "bench.limiter.soak", *sys.argv[1:]], rows, to=asked.output)
    print(results.full_table(rows))
    print(f"\nAll figures: {path}")
    return results.exit_status(rows)


if __name__ == "__main__":
    sys.exit(main())
