"""How many requests an engine may work on: what the policy says, as far as the engine can do it.

llama.cpp has slots, and a request beyond them waits inside the server, where nobody can take it back; so its limit is
never above them. Nor is it below them unless the policy says so, since an empty slot serves nobody. vLLM takes as many
sequences into a batch as `--max-num-seqs` says and keeps the others waiting.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.api.admission import Concurrency
from penstock.api.engine import EngineType

UNKNOWN_CONCURRENCY = 256
"""vLLM's own `--max-num-seqs` on most hardware, where nobody has said otherwise."""

UNLIMITED = 1 << 30


@dataclass(frozen=True, slots=True)
class Engine:
    """What is known of the engine.

    Attributes:
        type: Which one it is.
        concurrency: Requests it works on at the same time; None when unknown.
    """

    type: EngineType
    concurrency: int | None


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where the limit starts and may move."""

    floor: int
    initial: int
    ceiling: int


def bounds(wanted: Concurrency, engine: Engine, *, unlimited: bool = False) -> Bounds:
    """Return the bounds of the limit.

    Args:
        wanted: What the policy says.
        engine: What the engine can do.
        unlimited: Whether there is to be no limit at all.
    """
    if unlimited:
        return Bounds(UNLIMITED, UNLIMITED, UNLIMITED)
    known = engine.concurrency or UNKNOWN_CONCURRENCY
    ceiling = known if wanted.maximum is None else wanted.maximum
    initial, floor = wanted.initial, wanted.minimum
    if engine.type is EngineType.LLAMA_CPP:
        ceiling = min(ceiling, known)
    initial = ceiling if initial is None else min(initial, ceiling)
    if floor is None:
        floor = initial if engine.type is EngineType.LLAMA_CPP else 1
    floor = min(floor, ceiling)
    return Bounds(floor, max(initial, floor), ceiling)
