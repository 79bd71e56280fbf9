"""`python -m bench.limiter.fuzz`: damaged inputs for the limiter's parsers and for its relay, until the time is up.

Every case follows from a target, a seed and a number; a failing one is printed as the command that repeats it. What the
parsers get is saved as well by being a pure function of these. Seeds are taken from the clock unless one is given, so
every run tries something new.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.limiter import fuzzlive
from bench.limiter.fuzztargets import TARGETS

LIVE = "live"
SECONDS = 600.0
SLICE_SECONDS = 2.0
CASE_LIMIT_SECONDS = 5.0
FAILURES_SHOWN = 10


@dataclass
class Found:
    """What a run found.

    Attributes:
        cases: How many were tried, by target.
        failures: Commands that repeat a failure, with its last line.
    """

    cases: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def run(*, seconds: float, seed: int, targets: Sequence[str]) -> Found:
    """Try the targets in turn, a slice of time each."""
    found = Found()
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0 and len(found.failures) < FAILURES_SHOWN:
        for target in targets:
            span = min(SLICE_SECONDS, left)
            if target == LIVE:
                _live(seed, span * len(TARGETS), found)
            else:
                _pure(target, seed, span, found)
    return found


def repeat(target: str, seed: int, number: int) -> None:
    """Try one case and let its error out."""
    if target == LIVE:
        with tempfile.TemporaryDirectory(prefix="penstock-fuzz-") as folder:
            fuzzlive.run(seed=seed, first=number, seconds=0, folder=Path(folder))
    else:
        TARGETS[target](_chance(target, seed, number))


def _chance(target: str, seed: int, number: int) -> random.Random:
    return random.Random(f"{target}/{seed}/{number}")


def _pure(target: str, seed: int, seconds: float, found: Found) -> None:
    deadline = time.monotonic() + seconds
    while (began := time.monotonic()) < deadline:
        number = found.cases[target]
        found.cases[target] += 1
        try:
            TARGETS[target](_chance(target, seed, number))
            assert time.monotonic() - began < CASE_LIMIT_SECONDS, "it took very long"
        except Exception as error:
            _note(target, seed, number, error, found)


def _live(seed: int, seconds: float, found: Found) -> None:
    first = found.cases[LIVE]
    with tempfile.TemporaryDirectory(prefix="penstock-fuzz-") as folder:
        try:
            found.cases[LIVE] += fuzzlive.run(seed=seed, first=first, seconds=seconds, folder=Path(folder))
        except fuzzlive.Broken as broken:
            found.cases[LIVE] += broken.number - first + 1
            _note(LIVE, seed, broken.number, broken, found)


def _note(target: str, seed: int, number: int, error: Exception, found: Found) -> None:
    command = f"python -m bench.limiter.fuzz --target {target} --seed {seed} --case {number}"
    found.failures.append(f"{command}: {error!r}")
    print(f"FAILURE {found.failures[-1]}\n{''.join(traceback.format_exception(error))}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.limiter.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"how long (default {SECONDS:.0f})")
    parser.add_argument("--seed", type=int, default=None, help="of all chance (default: from the clock)")
    parser.add_argument("--target", action="append", choices=[*TARGETS, LIVE], help="only these; default all")
    parser.add_argument("--case", type=int, help="repeat this case of the one target")
    asked = parser.parse_args(arguments)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of every write after a reset
    targets = asked.target or [*TARGETS, LIVE]
    seed = int(time.time()) if asked.seed is None else asked.seed
    if asked.case is not None:
        repeat(targets[0], seed, asked.case)
        print("the case passes")
        return 0
    found = run(seconds=asked.seconds, seed=seed, targets=targets)
    tried = ", ".join(f"{target} {found.cases[target]}" for target in targets)
    print(f"seed {seed}: cases {tried}; {len(found.failures)} failures")
    for failure in found.failures:
        print(f"FAILURE {failure}")
    return int(bool(found.failures))


if __name__ == "__main__":
    sys.exit(main())
