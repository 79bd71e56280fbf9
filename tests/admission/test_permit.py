"""Permits and places in the queue are given back exactly once."""

import pytest

from penstock.admission.ask import Ask, Place, Waiting
from penstock.admission.permit import Outcome, Permit, PermitError


class Desk:
    """Notes what is given back."""

    def __init__(self):
        self.calls = []

    def end_prefill(self, permit, now):
        permit.prefill_tokens = 0
        self.calls.append(("prefill", now))

    def take_back(self, permit, outcome, now):
        self.calls.append((outcome, now))

    def leave(self, waiting, now):
        self.calls.append(("left", now))


def permit_of(desk, tokens=10):
    return Permit(desk, band=0, requests=1, prefill_tokens=tokens)


@pytest.mark.parametrize("outcome", [*Outcome, None], ids=str)
@pytest.mark.parametrize("again", [*Outcome, None], ids=str)
def test_a_second_return_is_a_defect_and_gives_nothing_back(outcome, again):
    def give_back(permit, how):
        permit.cancel(5.0) if how is None else permit.finish(how, 5.0)

    desk = Desk()
    permit = permit_of(desk)
    give_back(permit, outcome)
    with pytest.raises(PermitError):
        give_back(permit, again)
    assert desk.calls == [(outcome, 5.0)]


def test_the_first_byte_gives_the_prefill_tokens_back_once():
    desk = Desk()
    permit = permit_of(desk)
    permit.first_byte(1.0)
    permit.first_byte(2.0)
    assert desk.calls == [("prefill", 1.0)]


def test_a_first_byte_after_the_end_changes_nothing():
    desk = Desk()
    permit = permit_of(desk)
    permit.cancel(1.0)
    permit.first_byte(2.0)
    assert desk.calls == [(None, 1.0)]


@pytest.mark.parametrize("place", [Place.GRANTED, Place.TOLD, Place.LEFT], ids=str)
def test_a_place_that_is_no_more_cannot_be_left(place):
    desk = Desk()
    waiting = Waiting(desk, Ask(band="normal", tenant="a", budget_seconds=1.0), band=0, since=0.0)
    waiting.place = place
    with pytest.raises(PermitError, match=place.name.lower()):
        waiting.leave(1.0)
    assert desk.calls == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"weight": 0},
        {"weight": float("inf")},
        {"requests": 0},
        {"prefill_tokens": -1},
        {"cost": -1},
        {"cost": float("nan")},
        {"cost": float("inf")},
    ],
    ids=str,
)
def test_an_ask_that_no_queue_could_order_is_refused(wrong):
    with pytest.raises(ValueError, match="weight must be above 0"):
        Ask(band="normal", tenant="a", budget_seconds=1.0, **wrong)
