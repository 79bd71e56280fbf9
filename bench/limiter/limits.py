"""Quotas hold however many clients try at once, cost nothing when they refuse, and are told truly.

Each algorithm with each unit, as a quota of a tenant of its own; those of connections at a limiter of their own. A
crowd asks without a rest, and what was let through is compared with what the quota allows in that time: its limit once
for the beginning and once for each window (a fixed window may be met at both edges, a bucket is full at first). Tokens
are known only at the end of a request, so a crowd may go beyond by as much as its estimates are too low, once each.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

import uvloop

from bench.limiter.bed import bed, rate_limit
from bench.limiter.client import Connections, Seen, payload, request
from bench.limiter.replica import place, process
from bench.relay.processes import two_cores
from bench.results import Row, at_most

ALGORITHMS = ("TokenBucket", "LeakyBucket", "FixedWindow", "SlidingWindow")
UNITS = ("Requests", "Tokens", "PromptTokens")
CLIENTS = 50
WINDOW_SECONDS = 2
REQUESTS_PER_WINDOW = 40
OUTPUT_TOKENS = 20
PROMPT_TOKENS = 60
"""What the engine counts for a prompt that is estimated at about two thirds of it."""

ESTIMATED_PROMPT_TOKENS = 40
PROMPT = "x" * 130
PER_REQUEST = {"Requests": 1, "Tokens": PROMPT_TOKENS + OUTPUT_TOKENS, "PromptTokens": PROMPT_TOKENS}
ERROR = {"Requests": 0, "Tokens": PROMPT_TOKENS - ESTIMATED_PROMPT_TOKENS, "PromptTokens": 20}
REST_SECONDS = 0.2
"""Between a refusal and the next try of the same client."""

USED = 0.7
"""Part of what a quota allows that a crowd must get: less would mean that refusals cost."""

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:([\d.]+)s)?(?:(\d+)ms)?")


@dataclass
class Tally:
    """What came of one quota's crowd."""

    passed: int = 0
    refused: int = 0
    strange: int = 0
    seconds: float = 0.0

    def count(self, seen: Seen) -> None:
        """Note an answer."""
        if seen.status == 200 and seen.whole:
            self.passed += 1
        elif seen.status == 429:
            self.refused += 1
        else:
            self.strange += 1


@dataclass
class Outcome:
    """Every crowd by algorithm and unit, and how those fared who obey."""

    crowds: dict[tuple[str, str], Tally] = field(default_factory=dict)
    obedient: dict[tuple[str, str], Tally] = field(default_factory=dict)
    at_engine: int = 0


def run(*, seconds: float) -> list[Row]:
    """Let the crowds try for so long."""
    combinations = [(algorithm, unit) for algorithm in ALGORITHMS for unit in UNITS]
    names = {_name(*each): each for each in combinations}
    classes = [
        {"name": name, "tenants": [name, f"obedient-{name}"], "rateLimits": [_quota(*each)]}
        for name, each in names.items()
    ]
    policy = {
        "admission": {"retryBudgetPercent": 100},
        "tenants": {"identifyBy": "ApiKey", "keysSecretRef": {"name": "keys"}, "classes": classes},
    }
    tenants = {tenant: f"sk-{tenant}" for name in names for tenant in (name, f"obedient-{name}")}
    with bed(policy, tenants=tenants) as where:
        outcome = uvloop.run(_run(where.where.port, combinations, seconds))
        outcome.at_engine = where.engine_counts()["started"]
    rows = _rows(outcome)
    return rows + _rows_of_connections(seconds)


def _name(algorithm: str, unit: str) -> str:
    return f"{algorithm}-{unit}".lower()


def _quota(algorithm: str, unit: str) -> dict[str, object]:
    limit = REQUESTS_PER_WINDOW * PER_REQUEST.get(unit, 1)
    quota = rate_limit(_name(algorithm, unit), unit, algorithm, limit, windowSeconds=WINDOW_SECONDS)
    del quota["per"]
    return quota


async def _run(port: int, combinations: list[tuple[str, str]], seconds: float) -> Outcome:
    outcome = Outcome()
    await asyncio.gather(*(_crowd(port, each, seconds, outcome) for each in combinations))
    await asyncio.gather(*(_obey(port, each, seconds, outcome) for each in combinations))
    return outcome


async def _crowd(port: int, quota: tuple[str, str], seconds: float, outcome: Outcome) -> None:
    connections = Connections(port)
    tally = outcome.crowds[quota] = Tally()
    raw = _raw(_name(*quota))
    began = time.monotonic()

    async def client() -> None:
        while time.monotonic() - began < seconds:
            seen = await connections.ask(raw)
            tally.count(seen)
            if seen.status != 200:
                await asyncio.sleep(REST_SECONDS)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    tally.seconds = time.monotonic() - began
    connections.close()


async def _obey(port: int, quota: tuple[str, str], seconds: float, outcome: Outcome) -> None:
    """Send one request after the other, and wait for the reset whenever the headers say that the next may not fit."""
    connections = Connections(port)
    tally = outcome.obedient[quota] = Tally()
    raw = _raw(f"obedient-{_name(*quota)}")
    kind = "requests" if quota[1] == "Requests" else "tokens"
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        seen = await connections.ask(raw)
        tally.count(seen)
        if seen.status != 200:
            continue
        if int(seen.headers[f"x-ratelimit-remaining-{kind}"]) < PER_REQUEST[quota[1]]:
            await asyncio.sleep(seconds_of(seen.headers[f"x-ratelimit-reset-{kind}"]))
    connections.close()


def seconds_of(text: str) -> float:
    """Return a time such as `1m30s` or `12ms` in seconds."""
    found = _DURATION.fullmatch(text)
    assert found is not None
    hours, minutes, whole, thousandths = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + whole + thousandths / 1000


def _raw(tenant: str) -> bytes:
    body = payload(tokens=OUTPUT_TOKENS, prompt=PROMPT_TOKENS, pad=PROMPT, stream=False, max_tokens=OUTPUT_TOKENS)
    return request(body, key=f"sk-{tenant}")


def beyond(quota: tuple[str, str], tally: Tally) -> float:
    """Return what passed beyond what the quota allows, in its unit; negative when less passed."""
    cost = PER_REQUEST.get(quota[1], 1)
    windows = tally.seconds / WINDOW_SECONDS
    if quota[0] == "FixedWindow":
        windows = math.ceil(windows)  # those it touches count whole: the burst at an edge is what this algorithm is
    allowed = REQUESTS_PER_WINDOW * cost * (1 + windows)
    return tally.passed * cost - allowed - CLIENTS * ERROR.get(quota[1], 0)


def _rows(outcome: Outcome) -> list[Row]:
    crowds = outcome.crowds
    answered = sum(tally.passed for tally in [*crowds.values(), *outcome.obedient.values()])
    return [
        *_rows_of_crowds(crowds, "of requests and tokens"),
        at_most("refused requests that reached the engine", outcome.at_engine - answered, "", limit=0, bar="none"),
        at_most(
            "refusals of clients that obey the headers",
            sum(tally.refused + tally.strange for tally in outcome.obedient.values()),
            "",
            limit=0,
            bar="none",
        ),
        Row(
            name="answers to clients that obey the headers",
            value=sum(tally.passed for tally in outcome.obedient.values()),
            unit="",
        ),
    ]


def _rows_of_crowds(crowds: dict[tuple[str, str], Tally], what: str) -> list[Row]:
    exceeded = [name for name, tally in crowds.items() if beyond(name, tally) > 0]
    used = {
        name: tally.passed / (REQUESTS_PER_WINDOW * tally.seconds / WINDOW_SECONDS) for name, tally in crowds.items()
    }
    worst = min(used, key=lambda name: used[name])
    shown = f" ({', '.join(' '.join(name) for name in exceeded)})" if exceeded else ""
    return [
        at_most(
            f"quotas {what} that 50 clients exceeded{shown}", len(exceeded), "", limit=0, bar=f"none of {len(crowds)}"
        ),
        at_most(
            f"quotas {what}: part not used beside refusals ({' '.join(worst)})",
            1 - used[worst],
            "",
            limit=1 - USED,
            bar="at most 30 %: refusals cost nothing",
        ),
        at_most(
            f"quotas {what}: strange answers", sum(tally.strange for tally in crowds.values()), "", limit=0, bar="none"
        ),
        Row(name=f"quotas {what}: refusals", value=sum(tally.refused for tally in crowds.values()), unit=""),
    ]


def _rows_of_connections(seconds: float) -> list[Row]:
    crowds: dict[tuple[str, str], Tally] = {}
    core, _ = two_cores()
    with bed({}) as where, ExitStack() as stack:
        ports = {}
        for algorithm in ALGORITHMS:
            quota = {**_quota(algorithm, "Connections"), "per": "Address"}
            policy = {"admission": {"retryBudgetPercent": 100, "rateLimits": [quota]}}
            other = place(where.where.folder / algorithm, engine_port=where.where.engine_port, policy=policy)
            stack.enter_context(process(other, core=core))
            ports[algorithm, "Connections"] = other.port
        uvloop.run(_connect_all(ports, seconds, crowds))
    return _rows_of_crowds(crowds, "of connections")


async def _connect_all(ports: dict[tuple[str, str], int], seconds: float, crowds: dict[tuple[str, str], Tally]) -> None:
    raw = request(payload(stream=False), headers={"Connection": "close"})

    async def crowd(quota: tuple[str, str], port: int) -> None:
        tally = crowds[quota] = Tally()
        began = time.monotonic()

        async def client() -> None:
            while time.monotonic() - began < seconds:
                connections = Connections(port)
                seen = await connections.ask(raw)
                connections.close()
                tally.count(seen)
                if seen.status != 200:
                    await asyncio.sleep(REST_SECONDS)

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        tally.seconds = time.monotonic() - began

    await asyncio.gather(*(crowd(quota, port) for quota, port in ports.items()))
