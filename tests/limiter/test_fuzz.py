"""A moment of each fuzz target; `python -m bench.limiter.fuzz` goes on for as long as one likes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bench.limiter import fuzzlive
from bench.limiter.fuzztargets import TARGETS

CASES = 500
SEED = 6


@pytest.mark.parametrize("target", TARGETS)
def test_damaged_input_breaks_no_promise(target: str) -> None:
    for number in range(CASES):
        TARGETS[target](random.Random(f"{target}/{SEED}/{number}"))


def test_two_hostile_sides_leave_nothing_behind(tmp_path: Path) -> None:
    assert fuzzlive.run(seed=SEED, first=0, seconds=0, folder=tmp_path) == 1
