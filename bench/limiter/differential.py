"""`python -m bench.limiter.differential`: are the bytes the same with and without the limiter?

Generated connections (`pairs`) are held twice with the same recording engine: directly, and through a limiter with all
features on that touches a request. What both ends saw (`parties`) must be the same but for the documented list
(`differences`), and every entry of the list must occur.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from bench.limiter.differences import (
    ANSWER_DIFFERENCES,
    BROKEN,
    REPEATED,
    REQUEST_DIFFERENCES,
    Case,
    may_be_repeated,
    settled_answer,
    settled_request,
)
from bench.limiter.pairs import Talk, talk
from bench.limiter.parties import Engine, SeenAnswer, SeenRequest, hold, running_engine
from bench.limiter.replica import HOST, inside, place
from penstock.limiter.limiter import Limiter
from penstock.limiter.loop import Loop

TALKS_AT_ONCE = 16
PAIRS = 5000
SEED = 1
QUIET_SECONDS = 10.0
SHOWN_BYTES = 400
SHOWN_FAULTS = 5
POLICY = {
    "admission": {
        "retryBudgetPercent": 100,
        "rateLimits": [
            {"name": "requests", "per": "Tenant", "unit": "Requests", "algorithm": "TokenBucket", "limit": 10**9},
            {"name": "tokens", "per": "Backend", "unit": "Tokens", "algorithm": "SlidingWindow", "limit": 10**12},
            {"name": "prompts", "per": "Address", "unit": "PromptTokens", "algorithm": "FixedWindow", "limit": 10**12},
        ],
    }
}
DIFFERENCES = (*REQUEST_DIFFERENCES, *ANSWER_DIFFERENCES, BROKEN, REPEATED)


@dataclass
class Report:
    """What a run found.

    Attributes:
        pairs: Requests that were compared.
        seconds: How long it took.
        occurred: How often each documented difference was seen.
        faults: What else differed, in words.
    """

    pairs: int = 0
    seconds: float = 0.0
    occurred: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    @property
    def missing(self) -> list[str]:
        """Return the documented differences that never occurred."""
        return [name for name in DIFFERENCES if not self.occurred[name]]


def compare(*, seed: int, pairs: int, folder: Path) -> Report:
    """Hold talks until so many pairs were compared, on a loop of its own."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(_compare(seed, pairs, folder))


async def _compare(seed: int, pairs: int, folder: Path) -> Report:
    report = Report()
    began = time.monotonic()
    async with running_engine() as engine:
        where = place(folder, engine_port=engine.port, policy=POLICY)
        async with inside(where) as limiter:
            number = 0
            while report.pairs < pairs:
                batch = [talk(seed, number + offset) for offset in range(TALKS_AT_ONCE)]
                await asyncio.gather(*(_one(engine, where.port, each, report) for each in batch))
                number += TALKS_AT_ONCE
            await _look_for_leaks(limiter, report)
    report.seconds = time.monotonic() - began
    return report


async def _one(engine: Engine, port: int, talk: Talk, report: Report) -> None:
    asked: list[list[list[SeenRequest]]] = []
    answered: list[list[SeenAnswer]] = []
    for target in (engine.port, port):
        engine.expect(talk)
        try:
            answered.append(await hold(talk, target))
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            way = "directly" if target == engine.port else "through the limiter"
            report.faults.append(f"talk {talk.number} {way}: {error!r}")
            return
        asked.append([engine.seen[f"{talk.number}-{index}"] for index in range(len(talk.pairs))])
    report.pairs += len(talk.pairs)
    counts = [[len(requests) for requests in by_pair] for by_pair in asked]
    if counts[0] != [1] * len(talk.pairs) or 0 in counts[1] or len(answered[0]) != len(answered[1]):
        report.faults.append(
            f"talk {talk.number} ({talk.way}): {counts[0]} requests and {len(answered[0])} answers directly, "
            f"{counts[1]} and {len(answered[1])} through the limiter: "
            f"{_shown([(seen.status, seen.body) for seen in answered[1] if seen.status >= 400])}"
        )
        return
    host = f"{HOST}:{engine.port}".encode()
    for index, ((direct,), (through, *again)) in enumerate(zip(asked[0], asked[1], strict=True)):
        ask, answer = talk.pairs[index]
        case = Case(talk=talk, ask=ask, answer=answer, asked=direct, engine_host=host)
        where = f"talk {talk.number}-{index} ({talk.way})"
        for seen in (through, *again):
            _judge_request(where, direct, seen, case, report)
        if again:
            report.occurred[REPEATED] += 1
            if len(again) > 1 or not may_be_repeated(answered[0][index], case):
                report.faults.append(f"{where}: the engine got it {1 + len(again)} times")
        _judge_answer(where, answered[0][index], answered[1][index], case, report)


def _judge_request(where: str, direct: SeenRequest, through: SeenRequest, case: Case, report: Report) -> None:
    expected = direct
    for name, change in REQUEST_DIFFERENCES.items():
        before, expected = expected, change(expected, case)
        report.occurred[name] += before != expected
    _note(f"{where}, request", expected, settled_request(through, case), report)


def _judge_answer(where: str, direct: SeenAnswer, through: SeenAnswer, case: Case, report: Report) -> None:
    if case.answer.breaks_at is not None and not direct.whole:
        report.occurred[BROKEN] += 1
        fault = _fault_of_broken(direct, through, case)
        if fault:
            report.faults.append(f"{where}, broken answer: {fault}; {_shown(through.body)}")
        return
    expected = direct
    for name, change in ANSWER_DIFFERENCES.items():
        before, expected = expected, change(expected, case)
        report.occurred[name] += before != expected
    if case.ask.expects:  # seen and skipped by a client that waits for it
        through = SeenAnswer(**{**vars(through), "interim": ()})
    _note(f"{where}, answer", expected, settled_answer(through, case), report)


def _fault_of_broken(direct: SeenAnswer, through: SeenAnswer, case: Case) -> str:
    if not direct.status:
        return "" if through.status == 502 and through.whole else f"status {through.status} instead of 502"
    if through.whole and not (case.is_stream and b'"error"' in through.body):
        return "it seems complete"
    said, mark, _ = through.body.partition(b'data: {"error"') if case.is_stream else (through.body, b"", b"")
    if case.is_stream and b"event: error" in said:
        said = said.partition(b"event: error")[0]
        mark = b"x"
    if mark:
        said = said.removesuffix(b"\n\n")
    whole = case.answer.payload
    return "" if whole.startswith(said) or direct.body.startswith(said) else "it brings what was never sent"


def _note(where: str, expected: SeenRequest | SeenAnswer, through: SeenRequest | SeenAnswer, report: Report) -> None:
    if expected == through:
        return
    wrong = [
        f"{one.name}: {_shown(getattr(expected, one.name))} expected, {_shown(getattr(through, one.name))} seen"
        for one in fields(expected)
        if getattr(expected, one.name) != getattr(through, one.name)
    ]
    report.faults.append(f"{where}: {'; '.join(wrong)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_BYTES else f"{text[:SHOWN_BYTES]}... ({len(text)} characters)"


async def _look_for_leaks(limiter: Limiter, report: Report) -> None:
    """Wait until everything was given back."""
    books, relay = limiter.admission.gate.books, limiter.relay

    def held() -> str:
        return (
            f"{books.in_flight} in flight, {len(relay.exchanges)} exchanges, {relay.budget.held_bytes} body bytes, "
            f"{len(relay.connections)} connections, drift {books.drift}"
        )

    nothing = "0 in flight, 0 exchanges, 0 body bytes, 0 connections, drift 0"
    deadline = time.monotonic() + QUIET_SECONDS
    while held() != nothing and time.monotonic() < deadline:  # noqa: ASYNC110 - plain state
        await asyncio.sleep(0.05)  # plain state without an event
    if held() != nothing:
        report.faults.append(f"not given back: {held()}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.limiter.differential", description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"how many to compare (default {PAIRS})")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of the generator (default {SEED})")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="penstock-differential-") as folder:
        report = compare(seed=asked.seed, pairs=asked.pairs, folder=Path(folder))
    for name in DIFFERENCES:
        print(f"{report.occurred[name]:6} {name}")
    for fault in report.faults[:SHOWN_FAULTS]:
        print(f"FAULT {fault}")
    print(
        f"{report.pairs} pairs of seed {asked.seed} in {report.seconds:.1f} s: "
        f"{len(report.faults)} faults, {len(report.missing)} documented differences never seen"
    )
    return int(bool(report.faults or report.missing))


if __name__ == "__main__":
    sys.exit(main())
