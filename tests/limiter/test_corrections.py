"""Corrections are sent again where nothing was done, and counted where they are lost."""

from __future__ import annotations

import pytest

from penstock.admission.question import Settlement
from penstock.limiter import corrections
from penstock.limiter.corrections import Corrections
from penstock.limiter.storeline import LineError


def correction(number: int) -> Settlement:
    return Settlement((b"key",), (number,))


def waiting(count: int) -> Corrections:
    made = Corrections()
    for number in range(count):
        made.add(correction(number))
    return made


def test_what_was_done_is_forgotten() -> None:
    some = waiting(3)
    taken = some.take(2)
    assert some.answered(taken, [1, 1]) is None
    assert (len(some), some.lost) == (1, 0)


@pytest.mark.parametrize("word", sorted(corrections.NOT_DONE))
def test_what_the_store_did_not_do_is_sent_again_in_its_old_order(word: str) -> None:
    some = waiting(4)
    taken = some.take(3)
    failed = some.answered(taken, [LineError(word), 1, LineError(word)])
    assert str(failed) == word
    assert some.take(9) == [correction(0), correction(2), correction(3)]
    assert some.lost == 0


def test_what_failed_in_another_way_is_lost_and_counted() -> None:
    some = waiting(2)
    taken = some.take(2)
    assert some.answered(taken, [LineError("out_of_memory"), 1]) is not None
    assert (len(some), some.lost) == (0, 1)


def test_a_broken_connection_loses_what_was_under_way() -> None:
    some = waiting(5)
    some.broken(some.take(3))
    assert (len(some), some.lost) == (2, 3)


def test_too_many_push_the_oldest_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corrections, "LIMIT", 2)
    some = waiting(3)
    assert some.take(9) == [correction(1), correction(2)]
    assert some.lost == 1


def test_corrections_of_one_store_never_go_to_another() -> None:
    some = waiting(2)
    some.clear()
    assert (some.take(9), some.lost) == ([], 2)
