"""How much of the limit each class may use."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admission.bands import Bands, Verdict, parts
from penstock.api.admission import BUILT_IN_CLASSES, PriorityClass


def bands_of(*parts):
    """Return bands of (ceiling, reserve) in per cent; the last is `normal`."""
    names = [*(f"class-{index}" for index in range(len(parts) - 1)), "normal"]
    return Bands(
        PriorityClass(name=name, ceiling_percent=top, reserved_percent=reserve)
        for name, (top, reserve) in zip(names, parts, strict=True)
    )


@st.composite
def any_bands(draw):
    left, parts = 100, []
    for _ in range(draw(st.integers(1, 4))):
        reserve = draw(st.integers(0, left))
        left -= reserve
        parts.append((draw(st.integers(max(1, reserve), 100)), reserve))
    return bands_of(*parts)


@pytest.mark.parametrize(
    ("limit", "ceilings"),
    [(1, [1, 1, 1]), (2, [2, 2, 2]), (4, [4, 4, 3]), (10, [10, 9, 6]), (100, [100, 90, 60])],
)
def test_ceilings_are_rounded_up(limit, ceilings):
    assert parts(BUILT_IN_CLASSES, limit)[0] == ceilings


@pytest.mark.parametrize(
    ("percents", "limit", "reserves"),
    [
        ((10, 10, 0), 1, [0, 0, 0]),
        ((10, 10, 0), 2, [1, 0, 0]),
        ((10, 10, 0), 4, [1, 1, 0]),
        ((25, 10, 0), 10, [3, 1, 0]),
        ((50, 50, 0), 10, [5, 4, 0]),
        ((0, 0, 100), 8, [0, 0, 7]),
    ],
)
def test_reserves_are_rounded_up_and_leave_one_request_to_all(percents, limit, reserves):
    assert parts(bands_of(*((100, percent) for percent in percents)).classes, limit)[1] == reserves


def test_a_new_limit_is_divided_anew():
    bands = Bands(BUILT_IN_CLASSES)
    assert [bands.room(2, [0, 0, 0], limit).ceiling for limit in (10, 20, 10)] == [6, 12, 6]


@given(any_bands(), st.integers(1, 200))
def test_whatever_the_shares_every_class_can_run(bands, limit):
    """Each class alone may always have one in flight, also beside what others have in their reserves."""
    ceilings, reserves = parts(bands.classes, limit)
    assert sum(reserves) <= limit - 1
    assert min(ceilings) >= 1
    for band in range(len(bands.names)):
        assert bands.verdict(band, [0] * len(reserves), limit).admits
        others = [reserve if other > band else 0 for other, reserve in enumerate(reserves)]
        assert bands.verdict(band, others, limit).admits


@given(any_bands(), st.integers(1, 40), st.data())
def test_a_flood_never_takes_what_is_kept_for_a_higher_class(bands, limit, data):
    in_flight = [0] * len(bands.names)
    _, reserves = parts(bands.classes, limit)
    for band in data.draw(st.lists(st.integers(0, len(in_flight) - 1), max_size=80)):
        if bands.verdict(band, in_flight, limit).admits:
            in_flight[band] += 1
            kept = sum(max(0, reserves[higher] - in_flight[higher]) for higher in range(band))
            assert sum(in_flight) + kept <= limit
    while in_flight[0] < reserves[0]:  # nobody can spread into the reserve of the highest
        assert bands.verdict(0, in_flight, limit).admits
        in_flight[0] += 1


def test_a_batch_flood_leaves_the_last_reserved_interactive_permit():
    bands = bands_of((100, 25), (100, 0))
    in_flight = [0, 0]
    while bands.verdict(1, in_flight, 4).admits:
        in_flight[1] += 1
    assert in_flight == [0, 3]
    assert bands.verdict(0, in_flight, 4).admits


def test_a_class_below_its_reserve_holds_only_the_rest_of_it():
    bands = bands_of((100, 50), (100, 0))
    assert bands.verdict(1, [3, 4], 10).admits
    assert not bands.verdict(1, [3, 5], 10).admits


def test_a_higher_class_overflows_into_the_reserve_of_a_lower_one():
    bands = bands_of((100, 0), (100, 50))
    assert bands.verdict(0, [9, 0], 10).admits


def test_all_in_flight_count_against_a_ceiling():
    bands = Bands(BUILT_IN_CLASSES)
    assert bands.verdict(2, [3, 2, 0], 10) is Verdict.ENTER
    assert bands.verdict(2, [3, 3, 0], 10) is Verdict.CEILING


def test_a_reserve_is_not_held_by_the_ceiling_and_does_not_lower_that_of_others():
    bands = bands_of((80, 0), (30, 20))
    assert bands.verdict(1, [8, 0], 10) is Verdict.BULKHEAD
    assert bands.verdict(1, [8, 2], 10) is Verdict.FULL
    assert bands.verdict(0, [7, 2], 10) is Verdict.ENTER
    assert bands.verdict(0, [8, 1], 10) is Verdict.CEILING


@pytest.mark.parametrize(
    ("in_flight", "requests", "verdict"),
    [
        ([0, 0], 50, Verdict.ENTER),
        ([0, 1], 50, Verdict.FULL),
        ([0, 0], 6, Verdict.ENTER),
        ([1, 0], 6, Verdict.FULL),
        ([1, 0], 5, Verdict.CEILING),
        ([1, 0], 4, Verdict.ENTER),
    ],
    ids=["above L, idle", "above L", "above the ceiling, idle", "above the ceiling", "as large as the ceiling", "fits"],
)
def test_a_request_that_is_too_large_waits_for_an_idle_engine(in_flight, requests, verdict):
    assert bands_of((100, 0), (50, 0)).verdict(1, in_flight, 10, requests) is verdict


@given(any_bands(), st.integers(1, 50), st.data())
def test_the_room_is_exactly_what_may_enter(bands, limit, data):
    in_flight = [data.draw(st.integers(0, limit)) for _ in bands.names]
    band = data.draw(st.integers(0, len(in_flight) - 1))
    room = bands.room(band, in_flight, limit).requests
    if any(in_flight):
        assert bands.verdict(band, in_flight, limit, room + 1).admits is False
        if room:
            fits = max(one for one in range(1, room + 1) if bands.verdict(band, in_flight, limit, one).admits)
            assert fits == room
    assert room <= max(0, limit - sum(in_flight))


def test_an_unknown_class_is_normal():
    bands = Bands(BUILT_IN_CLASSES)
    assert bands.names[bands.index("no-such-class")] == "normal"
    assert bands.names[bands.index("batch")] == "batch"


def test_without_a_normal_class_there_are_no_bands():
    with pytest.raises(ValueError, match="must be named `normal`"):
        Bands(one for one in BUILT_IN_CLASSES if one.name != "normal")


def test_rounding_up_is_exact():
    bands = bands_of((7, 0))
    assert [parts(bands.classes, limit)[0][0] for limit in range(1, 500)] == [
        ceil(7 * one / 100) for one in range(1, 500)
    ]
