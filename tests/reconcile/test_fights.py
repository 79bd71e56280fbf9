"""A child that others keep changing is put right at once at first, and ever more slowly when it becomes a fight."""

import pytest

from penstock.reconcile import fights
from penstock.reconcile.fights import Fights

CHILD = "the Service"


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def referee(clock):
    return Fights(lambda: clock[0])


def repair(referee, clock, times, *, every_seconds):
    """Let a child be damaged so often, and return how long it had to wait each time."""
    waits = []
    for _ in range(times):
        clock[0] += every_seconds
        waits.append(referee.wait_seconds(CHILD))
        clock[0] += waits[-1]
        referee.put_right(CHILD)
    return waits


def test_a_child_that_nobody_has_touched_does_not_wait(referee):
    assert referee.wait_seconds(CHILD) == 0


@pytest.mark.parametrize("every_seconds", [0.05, 1.0], ids=["by a script", "by hand"])
def test_dozens_of_edits_in_a_row_are_put_right_at_once(referee, clock, every_seconds):
    assert set(repair(referee, clock, 60, every_seconds=every_seconds)) == {0}


def test_edits_that_go_on_for_hours_at_a_calm_pace_are_put_right_at_once(referee, clock):
    assert set(repair(referee, clock, 5000, every_seconds=1.0)) == {0}


def test_a_fight_waits_longer_each_time_up_to_a_bound(referee, clock):
    waits = repair(referee, clock, 120, every_seconds=0.01)
    assert set(waits[: fights.MOST_IN_WINDOW]) == {0}
    late = waits[fights.MOST_IN_WINDOW + 1 :]
    assert late == sorted(late)
    assert late[0] == pytest.approx(fights.FIRST_DELAY_SECONDS, abs=0.02)
    assert late[-1] == pytest.approx(fights.LONGEST_DELAY_SECONDS, abs=0.02)


def test_it_is_told_once_that_a_fight_has_begun(referee, clock):
    told = 0
    for _ in range(200):
        clock[0] += referee.wait_seconds(CHILD) + 0.01
        told += referee.put_right(CHILD)
    assert told == 1


def test_a_fight_is_over_when_the_child_was_left_in_peace(referee, clock):
    repair(referee, clock, 120, every_seconds=0.01)
    clock[0] += fights.WINDOW_SECONDS + 1
    assert set(repair(referee, clock, 60, every_seconds=0.01)) == {0}


def test_a_fight_over_one_child_does_not_slow_another(referee, clock):
    repair(referee, clock, 120, every_seconds=0.01)
    assert referee.wait_seconds(CHILD) > 0
    assert referee.wait_seconds("the Deployment") == 0
