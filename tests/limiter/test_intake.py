"""Bytes that wait to be read: a few empty lines before a request are skipped, many are no request."""

from __future__ import annotations

import pytest

from penstock.limiter.bodybudget import BodyBudget
from penstock.limiter.intake import EMPTY_LINES_LIMIT, FREE_BYTES, PIPELINE_LIMIT_BYTES, Intake
from penstock.limiter.refusal import Refused

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def filled(data: bytes) -> Intake:
    intake = Intake(BodyBudget(1 << 20))
    intake.add(data)
    return intake


@pytest.mark.parametrize("lines", [0, 1, EMPTY_LINES_LIMIT])
def test_a_few_empty_lines_before_a_head_are_skipped(lines: int) -> None:
    intake = filled(b"\r\n" * lines + HEAD)
    assert intake.has_begun()
    assert intake.take_head() is not None
    assert not intake.buffer


@pytest.mark.parametrize("step", [1, 2, 100], ids=["byte by byte", "line by line", "at once"])
def test_more_empty_lines_are_refused_however_they_come(step: int) -> None:
    lines = b"\r\n" * (EMPTY_LINES_LIMIT + 1)
    intake = Intake(BodyBudget(1 << 20))

    def come() -> None:
        for start in range(0, len(lines), step):
            intake.add(lines[start : start + step])
            assert not intake.has_begun()

    with pytest.raises(Refused):
        come()


def test_empty_lines_are_counted_anew_before_every_head() -> None:
    intake = filled((b"\r\n" * EMPTY_LINES_LIMIT + HEAD) * 3)
    for _ in range(3):
        assert intake.has_begun()
        assert intake.take_head() is not None


def test_half_an_empty_line_is_no_beginning() -> None:
    assert not filled(b"\r").has_begun()


def test_what_comes_too_early_is_kept_up_to_a_limit() -> None:
    intake = Intake(BodyBudget(1 << 20))
    intake.hold(bytes(PIPELINE_LIMIT_BYTES))
    assert not intake.overrun
    intake.hold(b"x")
    assert intake.overrun
    assert not intake.buffer


def test_large_heads_take_memory_from_the_budget_and_give_it_back() -> None:
    budget = BodyBudget(2 * FREE_BYTES)
    intake, other = Intake(budget), Intake(budget)
    intake.add(HEAD)
    assert budget.held_bytes == 0
    intake.add(bytes(FREE_BYTES))
    assert budget.held_bytes == len(HEAD) + FREE_BYTES
    other.add(bytes(FREE_BYTES))
    with pytest.raises(Refused):
        other.add(b"x")
    assert not other.buffer
    assert intake.take_head() is not None
    assert budget.held_bytes == 0
    intake.add(b"x")
    assert budget.held_bytes == FREE_BYTES + 1
    intake.clear()
    assert budget.held_bytes == 0


def test_without_memory_what_comes_too_early_is_dropped() -> None:
    intake = Intake(BodyBudget(FREE_BYTES))
    intake.hold(bytes(FREE_BYTES + 1))
    assert intake.overrun
    assert not intake.buffer
