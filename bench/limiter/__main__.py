"""`python -m bench.limiter`: measure what the limiter promises, write `results/bench-limiter.json`, print the table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import results, turn
from bench.limiter import aborts, fairness, limits, price, refusals, slots, uploads
from bench.relay.processes import BenchError
from bench.results import Row
from e2e.cache import say

NAME = "bench-limiter"

Measure = Callable[[bool], list[Row]]
"""Takes whether the short form is asked for."""


def _uploads(short: bool) -> list[Row]:
    outcome = uploads.run(uploads=50, streams=20) if short else uploads.run(uploads=500, streams=200)
    return uploads.rows(outcome)


MEASURES: dict[str, Measure] = {
    "refusals": lambda short: refusals.run(seconds=2 if short else 20),
    "aborts": lambda short: aborts.run(aborts=500 if short else 10_000),
    "slots": lambda short: slots.run(seconds=3 if short else 30),
    "uploads": _uploads,
    "fairness": lambda short: fairness.run(seconds=1.5 if short else 10),
    "limits": lambda short: limits.run(seconds=1.5 if short else 10),
    "price": lambda short: price.run(short=short),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.limiter", description=__doc__)
    parser.add_argument("--short", action="store_true", help="smaller loads and shorter times")
    parser.add_argument(
        "--only", action="append", choices=list(MEASURES), help="only this; can be given more than once"
    )
    parser.add_argument("--output", type=Path, help=f"where to write the rows (default results/{NAME}.json)")
    asked = parser.parse_args(arguments)
    rows: list[Row] = []
    try:
        with turn.only_one():
            for name in asked.only or MEASURES:
                say(f"measuring {name}")
                rows += MEASURES[name](asked.short)
    except BenchError as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 1
    path = results.write(NAME, ["python", "-m", "bench.limiter", *sys.argv[1:]], rows, to=asked.output)
    print(results.full_table(rows))
    print(f"\nAll figures: {path}")
    return results.exit_status(rows)


if __name__ == "__main__":
    sys.exit(main())
