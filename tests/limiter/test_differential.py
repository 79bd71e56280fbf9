"""With and without the limiter the bytes are the same, but for a documented list, every entry of which occurs.

`python -m bench.limiter.differential` compares thousands; here are a few hundred of the same generator. Set
`DIFFERENTIAL_PAIRS` for more.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from bench.limiter.differential import DIFFERENCES, Report, compare
from bench.limiter.pairs import talk
from bench.limiter.parties import answer_bytes, ask_bytes
from penstock.limiter import headers
from penstock.limiter.passage import Passage

PAIRS = int(os.environ.get("DIFFERENTIAL_PAIRS", "1000"))
SEED = 6
FEW = 60


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return compare(seed=SEED, pairs=PAIRS, folder=tmp_path_factory.mktemp("differential"))


def test_only_documented_differences_are_seen(report: Report) -> None:
    assert report.faults == []
    assert report.pairs >= PAIRS


@pytest.mark.parametrize("name", DIFFERENCES)
def test_every_documented_difference_occurs(report: Report, name: str) -> None:
    assert report.occurred[name] > 0


def test_a_single_changed_byte_of_an_answer_is_noticed(tmp_path: Path, monkeypatch) -> None:
    untouched = Passage.begin

    def damaged(self: Passage, head: bytes, data: bytes) -> None:
        untouched(self, head, data.replace(b"content", b"Content"))

    monkeypatch.setattr(Passage, "begin", damaged)
    assert compare(seed=SEED, pairs=FEW, folder=tmp_path).faults


def test_a_dropped_header_is_noticed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("penstock.limiter.headers._ENDS_HERE", headers._ENDS_HERE | {b"x-custom"})
    assert compare(seed=SEED, pairs=FEW, folder=tmp_path).faults


def test_a_request_that_is_sent_twice_is_noticed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("penstock.limiter.exchange.SAFE_METHODS", frozenset({b"GET", b"HEAD", b"OPTIONS", b"POST"}))
    report = compare(seed=SEED, pairs=PAIRS, folder=tmp_path)
    assert any("the engine got it 2 times" in fault for fault in report.faults)


def test_the_same_number_makes_the_same_connection() -> None:
    first, second = talk(SEED, 3), talk(SEED, 3)
    assert first == second != talk(SEED, 4)
    for ask, answer in first.pairs:
        assert ask_bytes(ask) == ask_bytes(dataclasses.replace(ask))
        assert answer_bytes(answer, head_only=False, usage=True).startswith(b"HTTP/1.")
