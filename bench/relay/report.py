"""From measurements to rows and a table: medians over rounds, ratios taken inside a round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tabulate import tabulate

from bench.relay.rounds import Measurement, Outcome
from bench.results import Row, at_most

MAXIMUM_NGINX_RATIO = 1.1
NGINX_BAR = "CPU per chunk at most 1.1 × nginx"
LOST_BAR = "no stream refused, short or corrupt"


@dataclass(frozen=True)
class Spread:
    """A median and its range."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of at least one value."""
        return cls(statistics.median(values), min(values), max(values))


Value = Callable[[Measurement], float | None]


def spread(measurements: Sequence[Measurement], load: str, contender: str, value: Value) -> Spread | None:
    """Return the spread of a value over the rounds of a load, None when it was not measured."""
    values = [value(one) for one in measurements if (one.load, one.contender) == (load, contender)]
    known = [each for each in values if each is not None]
    return Spread.of(known) if known else None


def against(
    measurements: Sequence[Measurement],
    load: str,
    contender: str,
    *,
    rival: str,
    value: Value,
    combine: Callable[[float, float], float],
) -> Spread | None:
    """Return the spread of `combine(contender, rival)`, computed in every round from that round's two values."""
    by_round: dict[str, dict[int, float]] = {contender: {}, rival: {}}
    for one in measurements:
        known = value(one)
        if one.load == load and one.contender in by_round and known is not None:
            by_round[one.contender][one.round] = known
    ours, theirs = by_round[contender], by_round[rival]
    combined = [combine(ours[number], theirs[number]) for number in ours if number in theirs]
    return Spread.of(combined) if combined else None


def cpu(one: Measurement) -> float | None:
    """CPU seconds per 51,200 chunks."""
    return one.cpu_seconds


def idle(one: Measurement) -> float | None:
    """Resident MiB before the load."""
    return one.idle_mebibytes


def loaded(one: Measurement) -> float | None:
    """Resident MiB at the end of the measured time."""
    return one.loaded_mebibytes


def first_p50(one: Measurement) -> float | None:
    """Median first-byte time in ms."""
    return one.seen.first_byte_p50_ms


def first_p99(one: Measurement) -> float | None:
    """99th percentile of the first-byte time in ms."""
    return one.seen.first_byte_p99_ms


def ratio(ours: float, theirs: float) -> float:
    """How many times theirs ours is."""
    return ours / theirs


def difference(ours: float, theirs: float) -> float:
    """What ours has on top of theirs."""
    return ours - theirs


def rows(outcome: Outcome, *, cpu_loads: Sequence[str], first_byte_load: str, judge_ratio: str | None) -> list[Row]:
    """Return every figure as a row.

    Args:
        outcome: The run.
        cpu_loads: Loads whose CPU time and memory count.
        first_byte_load: Load whose first-byte times count.
        judge_ratio: Load at which the limiter must hold its ratio to nginx; None leaves it as information.
    """
    found: list[Row] = []
    measured = outcome.measurements
    contenders = list(outcome.carried)
    for load in cpu_loads:
        for name in contenders:
            for what, value, unit in (
                ("CPU per 51,200 chunks", cpu, "s"),
                ("resident idle", idle, "MiB"),
                ("resident loaded", loaded, "MiB"),
            ):
                _append(found, f"{load}: {name} {what}", unit, spread(measured, load, name, value))
            nginx = against(measured, load, name, rival="nginx", value=cpu, combine=ratio)
            if name == "limiter" and load == judge_ratio and nginx is not None:
                found.append(
                    at_most(
                        f"{load}: limiter CPU / nginx CPU",
                        nginx.median,
                        "",
                        limit=MAXIMUM_NGINX_RATIO,
                        bar=NGINX_BAR,
                        low=nginx.low,
                        high=nginx.high,
                    )
                )
            elif name != "nginx":
                _append(found, f"{load}: {name} CPU / nginx CPU", "", nginx)
    for name in contenders:
        for what, value in (("p50", first_p50), ("p99", first_p99)):
            if name == "direct":
                added = spread(measured, first_byte_load, name, value)
                label = f"{first_byte_load}: direct first byte {what}"
            else:
                added = against(measured, first_byte_load, name, rival="direct", value=value, combine=difference)
                label = f"{first_byte_load}: {name} added first byte {what}"
            _append(found, label, "ms", added)
    for name in contenders:
        carried = outcome.carried[name]
        found.append(
            at_most(f"{name} lost streams of {carried.streams}", carried.lost, "streams", limit=0, bar=LOST_BAR)
        )
    return found


def _append(found: list[Row], name: str, unit: str, figure: Spread | None) -> None:
    if figure is not None:
        found.append(Row(name=name, value=figure.median, unit=unit, low=figure.low, high=figure.high))


def table(outcome: Outcome, *, load: str, first_byte_load: str) -> str:
    """Return one line per contender for people: median, and the range in brackets."""
    measured = outcome.measurements

    def added(name: str, value: Value) -> str:
        return _shown(
            against(measured, first_byte_load, name, rival="direct", value=value, combine=difference), digits=2
        )

    lines = [
        (
            name,
            _shown(spread(measured, load, name, cpu), digits=2),
            _shown(against(measured, load, name, rival="nginx", value=cpu, combine=ratio), digits=2),
            added(name, first_p50),
            added(name, first_p99),
            _shown(spread(measured, load, name, idle), digits=0),
            _shown(spread(measured, load, name, loaded), digits=0),
            f"{carried.lost} of {carried.streams}",
        )
        for name, carried in outcome.carried.items()
    ]
    headers = [
        load,
        "CPU s per\n51,200 chunks",
        "× nginx",
        "added first byte\np50 ms",
        "added first byte\np99 ms",
        "resident MiB\nidle",
        "resident MiB\nloaded",
        "lost streams\n(all loads)",
    ]
    return tabulate(lines, headers=headers, tablefmt="simple", disable_numparse=True)


def _shown(figure: Spread | None, *, digits: int) -> str:
    if figure is None:
        return "-"
    if figure.low == figure.high:
        return f"{figure.median:.{digits}f}"
    return f"{figure.median:.{digits}f} ({figure.low:.{digits}f} to {figure.high:.{digits}f})"
