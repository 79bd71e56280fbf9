"""`python -m bench.relay`: measure the relay beside its rivals, write `results/bench-relay.json`, print the table."""

from __future__ import annotations

import argparse
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import results, turn
from bench.relay import binaries, contenders, report, rounds
from bench.relay.contenders import Contender
from bench.relay.loads import Load
from bench.relay.processes import BenchError
from e2e.cache import say
from e2e.cluster.errors import ClusterError

NAME = "bench-relay"
ROUNDS = 3
ATTEMPTS = 4
REASONS_SHOWN = 5
HEAVY = Load(name="256 × 50/s", streams=256, chunks=200, every_ms=20, warmup_ms=1000, measure_ms=8000)
STEPS = Load(
    name="256 × 50/s in steps", streams=256, chunks=200, every_ms=20, warmup_ms=1000, measure_ms=8000, aligned=True
)
LIGHT = Load(name="100 × 10/s", streams=100, chunks=10, every_ms=100, warmup_ms=1000, measure_ms=6000)
MANY = Load(name="2000 × 5/s", streams=2000, chunks=40, every_ms=200, warmup_ms=1000, measure_ms=6000)
SHORT = Load(name="32 × 50/s", streams=32, chunks=40, every_ms=20, warmup_ms=200, measure_ms=2000)


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    chosen = [each for each in contenders.ALL if each.name not in asked.without]
    if asked.short:
        chosen = [each for each in chosen if each is not contenders.ENVOY]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    _allow_many_files()
    try:
        return _measure(chosen, short=asked.short, repetitions=asked.rounds, to=asked.output)
    except (BenchError, ClusterError) as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{NAME}: stopped; every process it started has ended", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.relay", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a small load, once, without Envoy; judges integrity only")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"repetitions of the main loads (default {ROUNDS})")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=[each.name for each in contenders.ALL],
        help="leave a contender out; can be given more than once",
    )
    parser.add_argument("--output", type=Path, help=f"where to write the rows (default results/{NAME}.json)")
    return parser


def _measure(chosen: Sequence[Contender], *, short: bool, repetitions: int, to: Path | None) -> int:
    binaries.relaybench()
    for contender in chosen:
        if version := contender.prepare():
            say(f"{contender.name}: {version}")
    if short:
        load = first_byte_load = SHORT
        plan = [(SHORT, chosen, 1)]
        cpu_loads = [SHORT.name]
    else:
        load, first_byte_load = HEAVY, LIGHT
        pair = [each for each in chosen if each in (contenders.LIMITER, contenders.NGINX)]
        plan = [(HEAVY, chosen, repetitions), (LIGHT, chosen, repetitions), (STEPS, pair, repetitions), (MANY, pair, 1)]
        cpu_loads = [HEAVY.name, STEPS.name, MANY.name]
    with turn.only_one():
        outcome = rounds.run(plan, attempts=1 if short else ATTEMPTS)
    rows = report.rows(
        outcome,
        cpu_loads=cpu_loads,
        first_byte_load=first_byte_load.name,
        judge_ratio=None if short else HEAVY.name,
    )
    command = ["python", "-m", "bench.relay", *sys.argv[1:]]
    path = results.write(NAME, command, rows, to=to)
    print(report.table(outcome, load=load.name, first_byte_load=first_byte_load.name))
    print()
    print(results.judged_table(rows))
    for name, carried in outcome.carried.items():
        for reason in carried.reasons[:REASONS_SHOWN]:
            print(f"{name} lost a stream: {reason}")
    for run in outcome.dropped:
        print(f"no times of {run}: the machine was busy with other things")
    print(f"\nAll figures: {path}")
    if outcome.dropped and not short:
        print("Not every run counts; run this again when the machine is quiet.")
        return 1
    return results.exit_status(rows)


def _interrupt(*_: object) -> None:
    # Once is enough: another signal must not cut short the ending of the processes.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _allow_many_files() -> None:
    """Raise the soft limit of open files: every stream takes two at the proxy."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main())
