"""What should pass by itself is looked at soon, and more and more rarely when it does not."""

import pytest

from penstock.reconcile import patience
from penstock.reconcile.patience import Patience, look_again_seconds


@pytest.mark.parametrize(
    ("lasted", "wait"), [(0, 0.5), (0.5, 0.5), (1, 1), (4, 4), (30, 30), (3600, 30)], ids=lambda value: f"{value} s"
)
def test_each_wait_is_as_long_as_all_before_it_within_bounds(lasted, wait):
    assert look_again_seconds(lasted) == wait


def test_an_hour_of_waiting_takes_few_looks():
    lasted, looks = 0.0, 0
    while lasted < 3600:
        lasted += look_again_seconds(lasted)
        looks += 1
    assert looks < 3600 / patience.LONGEST_SECONDS + 10


def test_a_wait_lasts_from_its_first_look_until_it_is_over():
    clock = [100.0]
    waiting = Patience(lambda: clock[0])
    assert waiting.lasted_seconds("a") == 0
    clock[0] += 7
    assert (waiting.lasted_seconds("a"), waiting.lasted_seconds("b")) == (7, 0)
    waiting.over("a")
    assert waiting.lasted_seconds("a") == 0
    waiting.over("never begun")
