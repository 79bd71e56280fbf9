"""Who gets how much when there is not enough: equal tenants, weights, an attacker, and a flood of batch requests.

Every tenant that is to get its share keeps requests waiting all the time, and each has another number of clients: a
limiter that served whoever comes first would give as many times the share to the one that has as many times the
clients. What a tenant got is counted in answers that ended in the measured time.

A victim that asks for less than its share goes next when something ends at the engine, and what runs there is not
interrupted. So what an attacker adds to its first token is about the time until one of all requests ends, here some
5 ms: the engine works on about as many as a vLLM does, and takes as long for a first token.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import uvloop

from bench.limiter.bed import Bed, bed
from bench.limiter.client import Connections, Seen, payload, percentile, request
from bench.results import Row, at_most

CONCURRENCY = 16
WARM_SECONDS = 1.0
CLIENTS = (20, 25, 30, 40, 60, 80)
WEIGHTS = (1, 2, 4)
CLIENTS_PER_WEIGHT = (60, 45, 30)  # the heaviest has the fewest
REQUEST = {"first_ms": 20, "tokens": 5, "every_ms": 5}
JAIN_LIMIT = 0.98
WEIGHT_ERROR_LIMIT = 0.05

VICTIM_CONCURRENCY = 96
VICTIM_REQUEST = {"first_ms": 200, "tokens": 10, "every_ms": 20}
LENGTHS = (5, 15)
"""Tokens of the victim's and the attacker's answers, evenly spread: were they alike, requests that began together would
end together, and whoever comes in between would wait for the next crowd."""

MAX_TOKENS = 15
VICTIM_PER_SECOND = 25.0
ATTACK = 10
VICTIM_RATIO_LIMIT = 1.3

RESERVED_PERCENT = 25
BATCH_CLIENTS = 100
INTERACTIVE_PER_SECOND = 10.0
MILLISECONDS = 1000
QUEUE = {"maxRequests": 2000, "maxWaitSeconds": 60}


def run(*, seconds: float) -> list[Row]:
    """Measure each of the four for so long."""
    return [*_equal(seconds), *_weighted(seconds), *_attacked(seconds), *_flooded(seconds)]


def jain(values: list[float]) -> float:
    """Return Jain's index: 1 when all have the same, 1/n when one has all."""
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def _key(tenant: str) -> str:
    return f"sk-{tenant}"


def _bed(
    classes: Mapping[str, dict[str, Any]], *, concurrency: int = CONCURRENCY, **admission: object
) -> AbstractContextManager[Bed]:
    named = [{"name": name, "tenants": [name], **more} for name, more in classes.items()]
    policy = {
        "admission": {"queue": QUEUE, "retryBudgetPercent": 100, **admission},
        "tenants": {"identifyBy": "ApiKey", "keysSecretRef": {"name": "keys"}, "classes": named},
    }
    return bed(policy, concurrency=concurrency, tenants={name: _key(name) for name in classes})


def _equal(seconds: float) -> list[Row]:
    tenants = {f"equal-{number}": clients for number, clients in enumerate(CLIENTS)}
    with _bed({name: {} for name in tenants}) as where:
        served = uvloop.run(_backlogged(where, tenants, seconds))
    index = jain([float(served[name]) for name in tenants])
    return [
        at_most("1 - Jain's index of equal tenants", 1 - index, "", limit=1 - JAIN_LIMIT, bar="Jain >= 0.98"),
        Row(name="answers to equal tenants, with 20 to 80 clients each", value=sum(served.values()), unit=""),
    ]


def _weighted(seconds: float) -> list[Row]:
    tenants = dict(zip((f"weight-{weight}" for weight in WEIGHTS), CLIENTS_PER_WEIGHT, strict=True))
    with _bed({f"weight-{weight}": {"weight": weight} for weight in WEIGHTS}) as where:
        served = uvloop.run(_backlogged(where, tenants, seconds))
    shares = [served[f"weight-{weight}"] / weight for weight in WEIGHTS]
    mean = sum(served.values()) / sum(WEIGHTS)
    error = max(abs(share / mean - 1) for share in shares)
    return [
        at_most("share of a tenant against its weight, largest error", error, "", limit=WEIGHT_ERROR_LIMIT, bar="5 %")
    ]


async def _backlogged(where: Bed, tenants: Mapping[str, int], seconds: float) -> Counter[str]:
    connections = Connections(where.where.port)
    served: Counter[str] = Counter()
    begin = time.monotonic() + WARM_SECONDS
    end = begin + seconds

    async def client(tenant: str, number: int) -> None:
        await asyncio.sleep(number * 0.003)
        while time.monotonic() < end:
            seen = await connections.ask(_request(tenant, REQUEST))
            served[tenant] += seen.whole and seen.status == 200 and begin <= time.monotonic() < end

    await asyncio.gather(*(client(tenant, number) for tenant, count in tenants.items() for number in range(count)))
    connections.close()
    return served


def _attacked(seconds: float) -> list[Row]:
    with _bed({"victim": {}, "attacker": {}}, concurrency=VICTIM_CONCURRENCY) as where:
        quiet, loud = (
            uvloop.run(_beside(where, times * VICTIM_PER_SECOND, seconds, VICTIM_REQUEST)) for times in (1, ATTACK)
        )
    alone, attacked = (percentile([seen.first for seen in one], 0.99) for one in (quiet, loud))
    lost = sum(seen.status != 200 or not seen.whole for seen in loud)
    return [
        at_most(
            "victim's first token p99, its neighbour at 10 x against 1 x",
            attacked / alone,
            "x",
            limit=VICTIM_RATIO_LIMIT,
            bar="at most 1.3 x",
        ),
        at_most("victim's requests that were refused or cut", lost, "", limit=0, bar="none"),
        Row(name="victim's first token p99, neighbour at 1 x", value=alone * MILLISECONDS, unit="ms"),
        Row(name="victim's first token p99, neighbour at 10 x", value=attacked * MILLISECONDS, unit="ms"),
    ]


async def _beside(where: Bed, attacks: float, seconds: float, shape: Mapping[str, float]) -> list[Seen]:
    """Send the victim's requests at their pace beside those of another, and return what came of them."""
    connections = Connections(where.where.port)
    seen: list[Seen] = []
    warm = WARM_SECONDS + 1  # the queue of the attacker is full then

    async def victim() -> None:
        await asyncio.sleep(warm)
        seen.extend(await _paced(connections, "victim", VICTIM_PER_SECOND, seconds, shape))

    await asyncio.gather(victim(), _paced(connections, "attacker", attacks, warm + seconds, shape))
    connections.close()
    return seen


async def _paced(
    connections: Connections, tenant: str, per_second: float, seconds: float, shape: Mapping[str, float]
) -> list[Seen]:
    """Send requests at moments of their own, however long the answers take."""
    began = time.monotonic()
    chance = random.Random(tenant)

    async def one(number: int) -> Seen:
        length = chance.randint(*LENGTHS)
        await asyncio.sleep(began + number / per_second - time.monotonic())
        return await connections.ask(_request(tenant, {**shape, "tokens": length}))

    return await asyncio.gather(*(one(number) for number in range(int(per_second * seconds))))


def _flooded(seconds: float) -> list[Row]:
    classes = [
        {"name": "interactive", "reservedPercent": RESERVED_PERCENT},
        {"name": "normal"},
        {"name": "batch", "maxWaitSeconds": 60},
    ]
    reserved = CONCURRENCY * RESERVED_PERCENT // 100
    tenants = {"batch": {"priorityClass": "batch"}, "interactive": {"priorityClass": "interactive"}}
    with _bed(tenants, priorityClasses=classes) as where:
        uvloop.run(_backlogged(where, {"batch": BATCH_CLIENTS}, seconds / 2))
        peak = where.engine_counts()["peak"]
        quiet, loud = uvloop.run(_in_flood(where, seconds))
    return [
        at_most(
            "batch requests at the engine beyond what is not reserved",
            max(0, peak - (CONCURRENCY - reserved)),
            "",
            limit=0,
            bar="none",
        ),
        at_most("interactive requests refused or cut in a flood", loud[1], "", limit=0, bar="none"),
        Row(name="batch requests at the engine, at most", value=peak, unit=f"of {CONCURRENCY}, {reserved} reserved"),
        Row(name="interactive first token p99 without a flood", value=quiet[0] * MILLISECONDS, unit="ms"),
        Row(name="interactive first token p99 in a flood", value=loud[0] * MILLISECONDS, unit="ms"),
    ]


async def _in_flood(where: Bed, seconds: float) -> tuple[tuple[float, int], tuple[float, int]]:
    """Return first-token p99, and how many were refused or cut, without and within a flood."""
    connections = Connections(where.where.port)
    ended = asyncio.Event()

    async def batch() -> None:
        while not ended.is_set():
            await connections.ask(_request("batch", VICTIM_REQUEST))

    async def look() -> tuple[float, int]:
        seen = await _paced(connections, "interactive", INTERACTIVE_PER_SECOND, seconds / 2, REQUEST)
        p99 = percentile([one.first for one in seen], 0.99)
        return p99, sum(one.status != 200 or not one.whole for one in seen)

    quiet = await look()
    flood = [asyncio.create_task(batch()) for _ in range(BATCH_CLIENTS)]
    await asyncio.sleep(WARM_SECONDS)
    loud = await look()
    ended.set()
    await asyncio.gather(*flood)
    connections.close()
    return quiet, loud


def _request(tenant: str, shape: Mapping[str, float]) -> bytes:
    return request(payload(max_tokens=MAX_TOKENS, **shape), key=_key(tenant))  # type: ignore[arg-type]
