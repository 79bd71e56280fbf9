"""Runs cases, scenes, laws and command lines against one kind of server, and compares them with the recording."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from e2e import cache
from e2e.conformance import laws, normal, scenes
from e2e.conformance.case import PROFILES, Case
from e2e.conformance.cases import CASES
from e2e.conformance.targets import Kind, Target, serve

RECORDED = Path(__file__).parent / "recorded"
ROUNDS_PER_LAW = 3
LAWS_PROFILE = "plain"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case: where it differs from the recording, or in which way a law was broken; nothing when equal."""

    name: str
    differences: list[str]


def send(target: Target, case: Case) -> dict[str, Any]:
    """Send a case's request and return the answer in normal form."""
    headers = dict(case.headers)
    if case.content_type is not None:
        headers["content-type"] = case.content_type
    reply = target.send(case.method, case.path, data=case.data(), headers=headers)
    return normal.answer(reply.status, reply.headers, reply.body, exact=case.exact)


def run(kind: Kind, *, only: Sequence[str], seed: int) -> Iterator[tuple[str, Any]]:
    """Yield every case's name and what was observed; a law yields None or what broke it."""
    for profile, flags in PROFILES.items():
        deeds = [(name, deed) for name, deed in _deeds(profile, seed) if _chosen(name, only)]
        if not deeds:
            continue
        cache.say(f"{kind}: {len(deeds)} cases with {' '.join(flags)}")
        with serve(kind, flags) as target:
            for name, deed in deeds:
                yield name, deed(target)
    for name, words in scenes.COMMANDS.items():
        if _chosen(f"command/{name}", only):
            yield f"command/{name}", scenes.refused_start(kind, words)


def _chosen(name: str, only: Sequence[str]) -> bool:
    return not only or any(text in name for text in only)


def _deeds(profile: str, seed: int) -> Iterator[tuple[str, Callable[[Target], Any]]]:
    """Yield everything that is done to the server of a profile, in order."""
    for case in CASES:
        if case.profile == profile:
            yield case.name, partial(send, case=case)
    if profile == LAWS_PROFILE:
        for name, law in laws.LAWS.items():
            yield f"law/{name}", partial(_broken, law=law, seed=seed)
    for scene in scenes.SCENES:
        if scene.profile == profile:
            yield f"scene/{scene.name}", scene.play


def _broken(target: Target, *, law: Callable[[laws.Bench], None], seed: int) -> str | None:
    bench = laws.Bench(target, seed)
    try:
        for _ in range(ROUNDS_PER_LAW):
            law(bench)
    except laws.LawBrokenError as error:
        return str(error)
    return None


def record(*, only: Sequence[str] = (), seed: int) -> int:
    """Record real vLLM and return the number of cases; what was seen before an error is kept too."""
    recorded = load()
    done: dict[str, Any] = {}
    try:
        for name, observed in run("vllm", only=only, seed=seed):
            done[name] = observed  # noqa: PERF403 what came before an error must stay
        if not only:
            recorded = {}
    finally:
        save({**recorded, **done})
    return len(done)


def save(recorded: dict[str, Any]) -> None:
    """Write a recording, one file per group of cases, one line per case."""
    groups: dict[str, dict[str, Any]] = {}
    for name, value in sorted(recorded.items()):
        groups.setdefault(name.split("/", 1)[0], {})[name] = value
    RECORDED.mkdir(exist_ok=True)
    for group, cases in groups.items():
        lines = (f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in cases.items())
        (RECORDED / f"{group}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def load() -> dict[str, Any]:
    """Return the recording of real vLLM, by case."""
    recorded: dict[str, Any] = {}
    for path in sorted(RECORDED.glob("*.json")):
        recorded.update(json.loads(path.read_text()))
    return recorded


def check(kind: Kind, *, only: Sequence[str] = (), seed: int) -> list[Outcome]:
    """Run everything against a server and compare."""
    recorded = load()
    outcomes = []
    for name, observed in run(kind, only=only, seed=seed):
        if name not in recorded:
            outcomes.append(Outcome(name, ["not recorded; run python -m e2e.conformance record"]))
        else:
            # Through JSON, as the recording went, so that only JSON's types are compared.
            found = json.loads(json.dumps(observed))
            outcomes.append(Outcome(name, normal.differences(recorded[name], found)))
    return outcomes
