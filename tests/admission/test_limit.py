"""A limit that others move."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admission.limit import BOUNDS, Limit


@given(
    st.integers(-5, 50),
    st.lists(st.one_of(st.integers(-5, 100), st.tuples(st.integers(1, 20), st.integers(20, 60))), max_size=20),
)
def test_it_never_leaves_its_bounds(initial, moves):
    limit = Limit(initial, floor=2, ceiling=30)
    for move in moves:
        if isinstance(move, tuple):
            limit.pin(*move)
        else:
            limit.set(move, "test")
        assert limit.floor <= limit.value <= limit.ceiling


@pytest.mark.parametrize(("wanted", "got"), [(7, 7), (1, 2), (99, 10)], ids=["inside", "below", "above"])
def test_it_moves_as_far_as_the_bounds_allow(wanted, got):
    limit = Limit(5, floor=2, ceiling=10)
    assert limit.set(wanted, "overload")
    assert (limit.value, limit.reason) == (got, "overload")


def test_the_reason_is_that_of_the_last_change():
    limit = Limit(5, ceiling=10)
    assert not limit.set(5, "overload")
    assert limit.reason == "initial"


def test_new_bounds_move_it_and_are_the_reason():
    limit = Limit(5, ceiling=10)
    assert limit.pin(1, 3)
    assert (limit.value, limit.reason) == (3, BOUNDS)
    assert not limit.pin(1, 4)


@pytest.mark.parametrize("bounds", [(0, 5), (6, 5)], ids=["nothing", "crossed"])
def test_bounds_that_are_no_range_are_refused(bounds):
    limit = Limit(5, ceiling=10)
    with pytest.raises(ValueError, match="1 <= floor <= ceiling"):
        limit.pin(*bounds)
    assert (limit.floor, limit.ceiling) == (1, 10)
