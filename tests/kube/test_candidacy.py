"""Who may take the Lease, when, and until when a leader may write: tables of times, no clock."""

import pytest

from penstock.kube.candidacy import Candidacy, Fence, Record, Step, Timing
from penstock.kube.errors import NotLeading

TIMING = Timing(duration=15, deadline=10, retry=2)


def held(version="1", *, holder="other", duration=15.0, transitions=3):
    return Record(holder=holder, duration=duration, transitions=transitions, acquired="then", version=version)


@pytest.fixture
def candidacy():
    return Candidacy("me", TIMING)


@pytest.mark.parametrize(
    "record",
    [None, Record(version="5", transitions=3), held(holder="me")],
    ids=["there is none", "it was given back", "it is our own, and the answer to taking it was lost"],
)
def test_it_is_taken_at_once(candidacy, record):
    assert candidacy.observe(record, now=0) is Step.TAKE


@pytest.mark.parametrize(
    ("looks", "step"),
    [
        ([(0, "1"), (14.9, "1")], Step.WAIT),
        ([(0, "1"), (15, "1")], Step.TAKE),
        ([(0, "1"), (14, "2"), (28, "2")], Step.WAIT),
        ([(0, "1"), (14, "2"), (29, "2")], Step.TAKE),
        ([(0, "1"), (100, "2")], Step.WAIT),
    ],
    ids=["not yet", "after its duration", "renewed meanwhile", "renewed, then silent", "renewed while we did not look"],
)
def test_another_s_lease_is_taken_when_it_has_not_changed_for_its_duration(candidacy, looks, step):
    for now, version in looks:
        last = candidacy.observe(held(version), now=now)
    assert last is step


@pytest.mark.parametrize(
    ("promised", "wait"), [(60.0, 60.0), (1.0, 15.0)], ids=["the holder's is longer", "our own is longer"]
)
def test_the_longer_duration_counts(candidacy, promised, wait):
    candidacy.observe(held(duration=promised), now=0)
    assert candidacy.wait_seconds(now=0) == wait


def test_a_claim_names_the_version_it_replaces_and_counts_the_change(candidacy):
    candidacy.observe(held("7", transitions=3), now=0)
    claim = candidacy.claim(stamp="now")
    assert claim == Record(holder="me", duration=15, transitions=4, acquired="now", version="7")


def test_a_renewal_keeps_when_it_was_acquired(candidacy):
    candidacy.wrote(Record(holder="me", duration=15, transitions=4, acquired="then", version="8"))
    assert candidacy.claim(stamp="now") == Record(holder="me", duration=15, transitions=4, acquired="then", version="8")


def test_the_first_claim_ever_creates_it(candidacy):
    candidacy.observe(None, now=0)
    assert candidacy.claim(stamp="now") == Record(holder="me", duration=15, transitions=0, acquired="now")


def test_only_an_own_lease_is_given_back(candidacy):
    candidacy.observe(held(), now=0)
    assert candidacy.release() is None
    candidacy.wrote(held("9", holder="me"))
    assert candidacy.release() == Record(holder="", duration=1, transitions=3, acquired="then", version="9")


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def passes(fence):
    try:
        fence.check()
    except NotLeading:
        return False
    return True


def test_a_fence_is_shut_until_it_is_extended_and_after_that_time():
    clock = Clock()
    fence = Fence(clock)
    assert not passes(fence)
    fence.extend(110)
    assert passes(fence)
    clock.now = 110
    assert not passes(fence)


def test_an_answer_that_comes_after_its_own_deadline_opens_nothing():
    """The renewal was sent, the process was stopped for half a minute, and the answer is read on."""
    clock = Clock()
    fence = Fence(clock)
    fence.extend(110)
    clock.now = 130
    fence.extend(112)
    assert not passes(fence)


def test_a_shut_fence_lets_nothing_pass():
    fence = Fence(Clock())
    fence.extend(110)
    fence.shut()
    assert not passes(fence)
    assert fence.left_seconds < 0
