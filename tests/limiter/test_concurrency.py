"""The bounds of the limit: what the policy says, as far as the engine can do it."""

from __future__ import annotations

import pytest

from penstock.api.admission import Concurrency
from penstock.api.engine import EngineType
from penstock.limiter.concurrency import UNKNOWN_CONCURRENCY, UNLIMITED, Bounds, Engine, bounds

LLAMA, VLLM = EngineType.LLAMA_CPP, EngineType.VLLM


@pytest.mark.parametrize(
    ("engine", "known", "wanted", "found"),
    [
        (VLLM, None, {}, Bounds(1, UNKNOWN_CONCURRENCY, UNKNOWN_CONCURRENCY)),
        (VLLM, 64, {}, Bounds(1, 64, 64)),
        (VLLM, 64, {"initial": 8}, Bounds(1, 8, 64)),
        (VLLM, 64, {"minimum": 4, "initial": 8, "maximum": 16}, Bounds(4, 8, 16)),
        (VLLM, 64, {"maximum": 100}, Bounds(1, 100, 100)),
        (VLLM, 4, {"minimum": 8}, Bounds(4, 4, 4)),
        (LLAMA, 4, {}, Bounds(4, 4, 4)),
        (LLAMA, 4, {"maximum": 100}, Bounds(4, 4, 4)),
        (LLAMA, 4, {"maximum": 2}, Bounds(2, 2, 2)),
        (LLAMA, 4, {"initial": 2}, Bounds(2, 2, 4)),
        (LLAMA, 4, {"minimum": 1}, Bounds(1, 4, 4)),
        (LLAMA, 4, {"minimum": 8, "maximum": 9}, Bounds(4, 4, 4)),
    ],
)
def test_the_engine_bounds_what_the_policy_wants(engine, known, wanted: dict[str, int], found: Bounds) -> None:
    assert bounds(Concurrency(**wanted), Engine(engine, known)) == found


@pytest.mark.parametrize("engine", EngineType)
def test_no_limit_is_no_limit_for_any_engine(engine: EngineType) -> None:
    assert bounds(Concurrency(maximum=1), Engine(engine, 1), unlimited=True) == Bounds(UNLIMITED, UNLIMITED, UNLIMITED)
