"""What the limiter costs where no rival is asked: added time, memory, and the most that one core carries.

The loads and their Go program are those of `bench.relay`, through a limiter with everything on that costs something.
The most that one core carries is told by the CPU time of a load that it carries easily: a load that fills the core of
the limiter would need more than the one that is left for it here.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import uvloop

from bench.limiter.bed import Bed, bed, rate_limit
from bench.limiter.client import Connections, payload, request
from bench.relay import binaries, rounds
from bench.relay.__main__ import HEAVY, LIGHT, MANY
from bench.relay.contenders import DIRECT, LIMITER
from bench.relay.rounds import CHUNKS_PER_FIGURE, Measurement, Outcome
from bench.results import Row, at_most

ATTEMPTS = 4
SHORT_MEASURE_MS = 2000
ADDED_P50_LIMIT_MS = 1.0
ADDED_P99_LIMIT_MS = 5.0
SMALL_CLIENTS = 32
KIBIBYTES_PER_MEBIBYTE = 1024

Figure = Callable[[Measurement], float]


def run(*, short: bool) -> list[Row]:
    """Measure three loads and small requests; the short form once, and without those that need long."""
    binaries.relaybench()
    if short:
        outcome = rounds.run([(replace(LIGHT, measure_ms=SHORT_MEASURE_MS), [DIRECT, LIMITER], 1)], attempts=2)
        return [*_added(outcome), *_small(seconds=2)]
    plan = [(LIGHT, [DIRECT, LIMITER], 3), (HEAVY, [LIMITER], 3), (MANY, [LIMITER], 1)]
    outcome = rounds.run(plan, attempts=ATTEMPTS)
    return [*_added(outcome), *_carried(outcome), *_small(seconds=5)]


def _added(outcome: Outcome) -> list[Row]:
    rows = []
    figures: tuple[tuple[str, Figure, float], ...] = (
        ("p50", lambda one: one.seen.first_byte_p50_ms, ADDED_P50_LIMIT_MS),
        ("p99", lambda one: one.seen.first_byte_p99_ms, ADDED_P99_LIMIT_MS),
    )
    for what, figure, limit in figures:
        direct, through = (_by_round(outcome, name, LIGHT.name, figure) for name in (DIRECT.name, LIMITER.name))
        added = [through[number] - direct[number] for number in direct.keys() & through.keys()]
        if added:
            rows.append(
                at_most(
                    f"added first byte {what} at {LIGHT.name}",
                    statistics.median(added),
                    "ms",
                    limit=limit,
                    bar=f"at most {limit:g} ms",
                    low=min(added),
                    high=max(added),
                )
            )
    lost = sum(carried.lost for carried in outcome.carried.values())
    return [*rows, at_most("streams lost while the price was measured", lost, "", limit=0, bar="none")]


def _carried(outcome: Outcome) -> list[Row]:
    cpu = list(_by_round(outcome, LIMITER.name, HEAVY.name, lambda one: one.cpu_seconds or 0.0).values())
    idle = list(_by_round(outcome, LIMITER.name, HEAVY.name, lambda one: one.idle_mebibytes or 0.0).values())
    rows = []
    if cpu:
        per_core = [CHUNKS_PER_FIGURE / seconds for seconds in cpu]
        rows += [
            _row("chunks per second of one core, by its CPU time at " + HEAVY.name, per_core, "/s"),
            _row("resident memory, idle", idle, "MiB"),
        ]
    many = [one for one in outcome.measurements if (one.contender, one.load) == (LIMITER.name, MANY.name)]
    for one in many:
        grown = (one.loaded_mebibytes or 0.0) - (one.idle_mebibytes or 0.0)
        per_stream = grown * KIBIBYTES_PER_MEBIBYTE / MANY.streams
        rows.append(Row(name=f"memory per stream at {MANY.name}", value=per_stream, unit="KiB"))
        rows.append(Row(name=f"resident memory at {MANY.name}", value=one.loaded_mebibytes or 0.0, unit="MiB"))
    return rows


def _row(name: str, values: Sequence[float], unit: str) -> Row:
    return Row(name=name, value=statistics.median(values), unit=unit, low=min(values), high=max(values))


def _by_round(outcome: Outcome, contender: str, load: str, figure: Figure) -> dict[int, float]:
    return {one.round: figure(one) for one in outcome.measurements if one.contender == contender and one.load == load}


def _small(*, seconds: float) -> list[Row]:
    """Ask small requests that are no streams, one after the other on each connection."""
    quotas = [
        rate_limit("requests", "Requests", "TokenBucket", 10**9),
        rate_limit("tokens", "Tokens", "SlidingWindow", 10**9),
    ]
    with bed({"admission": {"rateLimits": quotas}}) as where:
        before = where.limiter.cpu_seconds()
        count, took = uvloop.run(_ask(where, seconds))
        cpu = where.limiter.cpu_seconds() - before
    return [
        Row(name="small requests per second of one core, by its CPU time", value=count / cpu, unit="/s"),
        Row(name="small requests per second that this load reached", value=count / took, unit="/s"),
    ]


async def _ask(where: Bed, seconds: float) -> tuple[int, float]:
    connections = Connections(where.where.port)
    raw = request(payload(stream=False))
    began = time.monotonic()

    async def client() -> int:
        count = 0
        while time.monotonic() - began < seconds:
            count += (await connections.ask(raw)).status == 200
        return count

    counts = await asyncio.gather(*(client() for _ in range(SMALL_CLIENTS)))
    connections.close()
    return sum(counts), time.monotonic() - began
