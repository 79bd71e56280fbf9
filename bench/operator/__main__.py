"""`python -m bench.operator`: the operator on a real API server; writes `results/bench-operator.json`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bench import results, turn
from bench.operator import faults, life, quiet, repair, scale
from bench.results import Row
from e2e.cache import duration, say
from e2e.cluster.errors import ClusterError

NAME = "bench-operator"
JUDGED_BACKENDS = 1000
COUNTED = ("", "characters")
"""Units of rows that no busy machine changes."""

Phase = Callable[[], list[Row]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the phases that were asked for and return the exit status: 1 when a figure misses its bar."""
    asked = _parser().parse_args(arguments)
    phases = _phases(asked)
    rows: list[Row] = []
    failed = False
    try:
        with turn.only_one():
            for name in asked.only or phases:
                began = time.monotonic()
                rows += phases[name]()
                say(f"{name}: {duration(time.monotonic() - began)}")
    except* (ClusterError, AssertionError) as errors:
        print(results.full_table(rows))
        for error in errors.exceptions:
            print(f"{NAME}: {error}", file=sys.stderr)
        failed = True
    if failed:
        return 1
    if asked.short:
        rows = [_counted(row) for row in rows]
    print(results.full_table(rows))
    if asked.only:
        say("only a part has run: the figures are not kept")
    else:
        command = ["python", "-m", "bench.operator", *sys.argv[1:]]
        say(f"figures in {results.write(NAME, command, rows, to=asked.output)}")
    return results.exit_status(rows)


def _counted(row: Row) -> Row:
    """Return a row that is judged only if it counts something: a short run on a busy machine proves no time."""
    return row if row.unit in COUNTED else replace(row, bar=None, holds=None)


def _phases(asked: argparse.Namespace) -> dict[str, Phase]:
    short = asked.short
    counts = [100] if short else [100, 300, 1000]
    rounds = asked.rounds or (1 if short else 3)
    return {
        "scale": lambda: scale.run(counts=counts, rounds=rounds, judged=JUDGED_BACKENDS),
        "quiet": lambda: quiet.run(idle_seconds=asked.idle_seconds or (120.0 if short else 600.0)),
        "repair": lambda: repair.run(repetitions=3 if short else 20),
        "life": life.run,
        "faults": lambda: faults.run(short=short),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.operator", description=__doc__)
    parser.add_argument(
        "--short", action="store_true", help="small fleets, few repetitions; judges counts only: for CI"
    )
    parser.add_argument("--rounds", type=int, help="repetitions of the largest cold start (default 3)")
    parser.add_argument("--idle-seconds", type=float, help="how long nothing may happen (default 600)")
    parser.add_argument(
        "--only", action="append", choices=["scale", "quiet", "repair", "life", "faults"], help="only this (repeatable)"
    )
    parser.add_argument("--output", type=Path, help=f"where to write the rows (default results/{NAME}.json)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
