"""Refusals are cheap: how long they take while streams run, and whether the streams' pace suffers.

The same streams run first alone and then beside the refusals, so the two paces are compared within one run.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import uvloop

from bench.limiter.bed import bed, rate_limit
from bench.limiter.client import Connections, payload, percentile, request
from bench.results import Row, at_most

STREAMS = 200
EVERY_MS = 100
PER_SECOND = 2000
SENDERS = 64
MILLISECONDS = 1000
P99_LIMIT_MS = 5.0
GAP_RATIO_LIMIT = 2.0
KEPT = 0.9  # of the refusals that were due
KEYS = {"streams": "sk-streams", "flood": "sk-flood"}


@dataclass
class Outcome:
    """Latencies of refusals and gaps of streams, in seconds; `late` is how late the load itself was."""

    refused: list[float] = field(default_factory=list)
    others: int = 0
    late: list[float] = field(default_factory=list)
    quiet_gaps: list[float] = field(default_factory=list)
    loud_gaps: list[float] = field(default_factory=list)
    cut: int = 0
    seconds: float = 0.0


def run(*, seconds: float) -> list[Row]:
    """Measure for so long without refusals, and for as long with them."""
    quota = {**rate_limit("tight", "Requests", "FixedWindow", 1, windowSeconds=86400)}
    del quota["per"]
    policy = {
        "tenants": {
            "identifyBy": "ApiKey",
            "keysSecretRef": {"name": "keys"},
            "default": {},
            "classes": [{"name": "flood", "tenants": ["flood"], "rateLimits": [quota]}],
        }
    }
    with bed(policy, tenants=KEYS) as where:
        waited = where.limiter.waited_seconds()
        outcome = uvloop.run(_run(where.where.port, seconds))
        waited = where.limiter.waited_seconds() - waited
    quiet, loud = (percentile(gaps, 0.99) for gaps in (outcome.quiet_gaps, outcome.loud_gaps))
    rate = len(outcome.refused) / outcome.seconds
    return [
        at_most(
            "refusal p99 beside 200 streams",
            percentile(outcome.refused, 0.99) * MILLISECONDS,
            "ms",
            limit=P99_LIMIT_MS,
            bar="below 5 ms at 2,000/s",
        ),
        at_most(
            "gap between tokens p99, with refusals against without",
            loud / quiet,
            "x",
            limit=GAP_RATIO_LIMIT,
            bar="at most 2 x",
        ),
        at_most("missing part of 2,000 refusals/s", 1 - rate / PER_SECOND, "", limit=1 - KEPT, bar="at most 10 %"),
        at_most("streams cut beside refusals", outcome.cut, "", limit=0, bar="none"),
        at_most("requests over a quota that were not refused", max(0, outcome.others - 1), "", limit=0, bar="none"),
        Row(name="refusal p50 beside 200 streams", value=percentile(outcome.refused, 0.5) * MILLISECONDS, unit="ms"),
        Row(name="refusals per second", value=rate, unit="/s"),
        Row(name="gap p99 without refusals", value=quiet * MILLISECONDS, unit="ms"),
        Row(name="gap p99 with refusals", value=loud * MILLISECONDS, unit="ms"),
        Row(name="load of the refusals late p99", value=percentile(outcome.late, 0.99) * MILLISECONDS, unit="ms"),
        Row(name="limiter kept from its core by others", value=waited / (2 * seconds), unit="of the time"),
    ]


async def _run(port: int, seconds: float) -> Outcome:
    outcome = Outcome()
    loud, ended = asyncio.Event(), asyncio.Event()
    connections = Connections(port)
    raw = request(payload(tokens=20, every_ms=EVERY_MS), key=KEYS["streams"])

    async def stream(number: int) -> None:
        await asyncio.sleep(number * EVERY_MS / MILLISECONDS / STREAMS)
        while not ended.is_set():
            was_loud = loud.is_set()
            seen = await connections.ask(raw)
            outcome.cut += not seen.whole or seen.status != 200
            if was_loud == loud.is_set():
                (outcome.loud_gaps if was_loud else outcome.quiet_gaps).extend(seen.gaps)

    streams = [asyncio.create_task(stream(number)) for number in range(STREAMS)]
    await asyncio.sleep(seconds)
    loud.set()
    began = time.monotonic()
    flood = request(payload(stream=False), key=KEYS["flood"])

    async def refuse(number: int) -> None:
        """Send at moments of its own. Where the last answer came after that moment, waiting for it counts as well."""
        due = began + number / PER_SECOND
        while due < began + seconds:
            free = time.monotonic()
            await asyncio.sleep(max(0.0, due - free))
            sent = time.monotonic()
            outcome.late.append(sent - max(due, free))
            seen = await connections.ask(flood)
            if seen.status == 429:
                outcome.refused.append(time.monotonic() - (due if free > due else sent))
            else:
                outcome.others += 1
            due += SENDERS / PER_SECOND

    await asyncio.gather(*(refuse(number) for number in range(SENDERS)))
    outcome.seconds = time.monotonic() - began
    ended.set()
    await asyncio.gather(*streams)
    connections.close()
    return outcome
