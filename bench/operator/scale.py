"""Scale: from cold to all children and a status, beside a bare loop that applies the same objects in the same run.

Each measurement has a control plane of its own, because a store that has held more is slower; the two of one round
follow one another, half of the rounds beginning with the bare loop. The operator's time runs from the start of its
process to its last write of a child or a status, so it includes starting Python, taking the Lease and the first list.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from bench import results
from bench.operator import fleet
from bench.operator.world import World, end, world
from bench.results import Row
from e2e.cache import say

MAXIMUM_RATIO = 1.5
LARGEST_MEBIBYTES = 300
SMALL_FLEET = 50
SMALL_MEBIBYTES = 110
MAXIMUM_GROWTH = 1.25
SETTLE_SECONDS = 3.0
PATIENCE_SECONDS = 600
NOT_STATE = frozenset({"events"})

Measured = TypeVar("Measured")


@dataclass(frozen=True, kw_only=True)
class Cold:
    """One cold start with so many backends."""

    backends: int
    seconds: float
    cpu_seconds: float
    writes: int
    mebibytes: float


@dataclass(frozen=True, kw_only=True)
class Bare:
    """One run of the bare loop over what belongs to so many backends."""

    seconds: float
    objects: int


def run(*, counts: list[int], rounds: int, judged: int) -> list[Row]:
    """Measure and return the rows.

    Args:
        counts: Sizes of fleets, one after the other; the largest has the bare loop beside it.
        rounds: Repetitions of the largest.
        judged: The size from which on the ratio is judged.
    """
    largest = max(counts)
    pairs: list[tuple[Cold, Bare]] = []
    for number in range(rounds):
        if number % 2:
            cold, bare = _fresh(operator, largest), _fresh(loop, largest)
        else:
            bare, cold = _fresh(loop, largest), _fresh(operator, largest)
        pairs.append((cold, bare))
        say(
            f"scale {number + 1}/{rounds}: {largest} backends: operator {cold.seconds:.1f} s ({cold.writes} writes), "
            f"bare loop {bare.seconds:.1f} s ({bare.objects} applies), {cold.mebibytes:.0f} MiB"
        )
    smaller = []
    for count in sorted({SMALL_FLEET, *counts} - {largest}):
        smaller.append(_fresh(operator, count))
        say(f"scale: {count} backends: {smaller[-1].seconds:.1f} s, {smaller[-1].mebibytes:.0f} MiB")
    return _rows(pairs, smaller, judged=judged)


def operator(made: World, count: int) -> Cold:
    """Start an operator on so many new backends and wait until it is through."""
    namespace = f"cold-{count}"
    made.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    fleet.apply_all(made, fleet.backends(namespace, count))
    since = made.log.position()
    process = made.operator()
    process.until_ready()
    made.quiet_since(since, seconds=SETTLE_SECONDS, patience_seconds=PATIENCE_SECONDS)
    writes = [call for call in made.writes(since) if call.namespace == namespace]
    state = [call for call in writes if call.resource not in NOT_STATE]
    fleet.check(made, namespace, count)
    found = Cold(
        backends=count,
        seconds=state[-1].time.timestamp() - process.started,
        cpu_seconds=process.cpu_seconds(),
        writes=len(writes),
        mebibytes=process.peak_mebibytes(),
    )
    end(process)
    return found


def loop(made: World, count: int) -> Bare:
    """Apply what the operator would, for so many backends of its own that no operator knows."""
    namespace = f"bare-{count}"
    made.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    fleet.apply_all(made, fleet.backends(namespace, count))
    live = [
        {"apiVersion": fleet.API_VERSION, "kind": "LLMBackend", **one} for one in made.api.list("LLMBackend", namespace)
    ]
    objects = [child for one in live for child in fleet.children_of(one)]
    seconds = fleet.apply_all(made, objects, statuses=[fleet.statuses(one) for one in live])
    return Bare(seconds=seconds, objects=len(objects) + count)


def _fresh(measure: Callable[[World, int], Measured], count: int) -> Measured:
    """Return what one measurement finds on a control plane of its own."""
    with world(controller_manager=False) as made:
        return measure(made, count)


def _rows(pairs: list[tuple[Cold, Bare]], smaller: list[Cold], *, judged: int) -> list[Row]:
    largest = pairs[0][0].backends
    ratios = [cold.seconds / bare.seconds for cold, bare in pairs]
    seconds = [cold.seconds for cold, _ in pairs]
    rates = [bare.objects / bare.seconds for _, bare in pairs]
    memory = max(cold.mebibytes for cold, _ in pairs)
    typical = sorted((cold for cold, _ in pairs), key=lambda cold: cold.seconds)[len(pairs) // 2]
    found = [
        _spread(f"{largest} backends from cold", seconds, "s"),
        _spread("bare loop of 16 connections", [bare.seconds for _, bare in pairs], "s"),
        _spread("bare loop, applies per second", rates, "/s"),
        results.at_most(
            f"{largest} backends from cold / bare loop",
            statistics.median(ratios),
            "",
            limit=MAXIMUM_RATIO,
            bar="at most 1.5 × the bare loop",
            low=min(ratios),
            high=max(ratios),
        )
        if largest >= judged
        else _spread(f"{largest} backends from cold / bare loop", ratios, ""),
        results.at_most(f"{largest} backends, peak resident", memory, "MiB", limit=LARGEST_MEBIBYTES, bar="below 300"),
    ]
    found += [
        results.at_most(
            f"{SMALL_FLEET} backends, peak resident", cold.mebibytes, "MiB", limit=SMALL_MEBIBYTES, bar="at most 110"
        )
        for cold in smaller
        if cold.backends == SMALL_FLEET
    ]
    sizes = [*smaller, typical]
    for cold in sizes:
        name = f"{cold.backends} backends, per backend"
        found += [
            Row(name=f"{name}: writes until converged", value=cold.writes / cold.backends, unit=""),
            Row(name=f"{name}: operator CPU", value=1000 * cold.cpu_seconds / cold.backends, unit="ms"),
            Row(name=f"{name}: time", value=1000 * cold.seconds / cold.backends, unit="ms"),
        ]
    middle = [cold for cold in sizes if cold.backends >= 100]
    if len(middle) > 1:
        growth = (middle[-1].seconds / middle[-1].backends) / (middle[0].seconds / middle[0].backends)
        found.append(
            results.at_most(
                f"time per backend, {middle[-1].backends} against {middle[0].backends}",
                growth,
                "",
                limit=MAXIMUM_GROWTH,
                bar="cost per backend does not grow with the fleet",
            )
        )
    return found


def _spread(name: str, values: list[float], unit: str) -> Row:
    return Row(name=name, value=statistics.median(values), unit=unit, low=min(values), high=max(values))
