"""Runs by key: every row of the tables, and what holds whatever happens."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.admission import idempotency
from penstock.admission.idempotency import (
    ANSWER_LIMIT_BYTES,
    KEEP_SECONDS,
    PIECE_OVERHEAD_BYTES,
    RUNS_LIMIT,
    TOTAL_LIMIT_BYTES,
    Entry,
    Runs,
    Standing,
    State,
    is_key,
    made_by_sdk,
    scope_of,
)
from penstock.admission.repetition import Attempt, Kinship, kinship

NOW = 1000.0
LARGEST = ANSWER_LIMIT_BYTES - PIECE_OVERHEAD_BYTES


def begun(runs: Runs[str], scope: bytes = b"k", mark: bytes = b"m") -> Entry[str]:
    return runs.begin(scope, mark, "holder")


def standing(runs: Runs[str], scope: bytes = b"k", mark: bytes = b"m", now: float = NOW) -> Standing:
    return runs.find(scope, mark, now)[0]


# ---- the table


def test_an_unknown_key_begins_a_run_and_the_next_request_joins_it() -> None:
    runs: Runs[str] = Runs()
    assert standing(runs) is Standing.NEW
    entry = begun(runs)
    assert runs.find(b"k", b"m", NOW) == (Standing.JOINS, entry)


@pytest.mark.parametrize("state", ["open", "long", "kept"])
def test_another_body_conflicts_in_every_state(state: str) -> None:
    runs: Runs[str] = Runs()
    entry = begun(runs)
    if state == "long":
        assert not runs.grew(entry, ANSWER_LIMIT_BYTES)
    elif state == "kept":
        runs.served(entry, NOW)
    assert standing(runs, mark=b"other") is Standing.CONFLICTS


def test_a_served_answer_is_replayed_until_its_time_is_over() -> None:
    runs: Runs[str] = Runs()
    runs.served(begun(runs), NOW)
    assert standing(runs, now=NOW + KEEP_SECONDS - 1) is Standing.REPLAYS
    assert runs.next_expiry() == NOW + KEEP_SECONDS
    assert standing(runs, now=NOW + KEEP_SECONDS) is Standing.NEW
    assert (len(runs), runs.next_expiry()) == (0, None)


def test_a_failed_run_is_forgotten_so_that_a_retry_can_succeed() -> None:
    runs: Runs[str] = Runs()
    entry = begun(runs)
    runs.grew(entry, 100)
    runs.forget(entry)
    runs.forget(entry)
    assert (standing(runs), runs.total_bytes) == (Standing.NEW, 0)


def test_a_long_answer_cannot_be_joined_and_is_forgotten_at_its_end() -> None:
    runs: Runs[str] = Runs()
    entry = begun(runs)
    assert runs.grew(entry, LARGEST)
    assert not runs.grew(entry, 1)
    assert (standing(runs), runs.total_bytes) == (Standing.BUSY, 0)
    assert not runs.grew(entry, 1)
    runs.served(entry, NOW)
    assert standing(runs) is Standing.NEW


def test_the_oldest_answer_gives_way_to_new_bytes_and_an_open_run_to_none() -> None:
    runs: Runs[str] = Runs()
    fit = TOTAL_LIMIT_BYTES // ANSWER_LIMIT_BYTES
    for number in range(fit):
        entry = begun(runs, b"%d" % number)
        assert runs.grew(entry, LARGEST)
        if number < 2:
            runs.served(entry, NOW + number)
    for number in range(fit, fit + 2):
        assert runs.grew(begun(runs, b"%d" % number), LARGEST)
    assert [standing(runs, b"%d" % number) for number in range(2)] == [Standing.NEW] * 2
    assert not runs.grew(begun(runs, b"one too many"), 1)
    assert standing(runs, b"one too many") is Standing.BUSY
    assert standing(runs, b"2") is Standing.JOINS


def test_too_many_open_runs_leave_the_next_one_unknown_but_served() -> None:
    runs: Runs[str] = Runs()
    for number in range(RUNS_LIMIT):
        begun(runs, b"%d" % number)
    entry = begun(runs, b"next")
    assert (entry.state, standing(runs, b"next")) == (State.FORGOTTEN, Standing.NEW)
    assert not runs.grew(entry, 1)
    runs.served(entry, NOW)
    assert (len(runs), runs.total_bytes) == (RUNS_LIMIT, 0)


def test_a_key_belongs_to_its_tenant_and_path() -> None:
    found = {scope_of(*each) for each in [("a", "/p", b"k"), ("b", "/p", b"k"), ("a", "/q", b"k"), ("a/", "p", b"k")]}
    assert len(found) == 4


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"8e03978e-40d5-43e8-bc93-6894a57f9324", True),
        (b'"quoted as the draft has it"', True),
        (b"a", True),
        (b"a" * 255, True),
        (b"a" * 256, False),
        (b"", False),
        (b"\xc3\xa9", False),
        (b"tab\tinside", False),
    ],
)
def test_what_can_be_a_key(value: bytes, expected: bool) -> None:
    assert is_key(value) is expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"stainless-python-retry-42a16cd2-93af-4312-90d1-567a3acf2f8a", True),
        (b"stainless-node-retry-1", True),
        (b"order-17", False),
        (b"stainless-python", False),
    ],
)
def test_keys_that_an_sdk_made_up_are_told_from_chosen_ones(key: bytes, expected: bool) -> None:
    assert made_by_sdk(key) is expected


# ---- whatever happens


class Machine(RuleBasedStateMachine):
    """The table beside a list of what was done, with small limits."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = (idempotency.ANSWER_LIMIT_BYTES, idempotency.TOTAL_LIMIT_BYTES, idempotency.RUNS_LIMIT)
        idempotency.ANSWER_LIMIT_BYTES, idempotency.TOTAL_LIMIT_BYTES, idempotency.RUNS_LIMIT = 400, 1000, 4
        self.runs: Runs[int] = Runs()
        self.now = NOW
        self.running: list[Entry[int]] = []
        self.kept: list[Entry[int]] = []
        self.count = 0

    def teardown(self) -> None:
        idempotency.ANSWER_LIMIT_BYTES, idempotency.TOTAL_LIMIT_BYTES, idempotency.RUNS_LIMIT = self.limits

    @rule(key=st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f"]), body=st.sampled_from([b"1", b"2"]))
    def ask(self, key: bytes, body: bytes) -> None:
        found, entry = self.runs.find(key, body, self.now)
        if entry is None:
            assert found is Standing.NEW
            self.count += 1
            self.running.append(self.runs.begin(key, body, self.count))
            return
        assert (entry.mark == body) == (found is not Standing.CONFLICTS)
        if found is Standing.REPLAYS:
            assert entry in self.kept
        elif found in {Standing.JOINS, Standing.BUSY}:
            assert entry in self.running

    @rule(data=st.data(), size=st.integers(1, 300))
    def say(self, data: st.DataObject, size: int) -> None:
        if self.running:
            entry = data.draw(st.sampled_from(self.running))
            assert self.runs.grew(entry, size) is (entry.state is State.OPEN)

    @rule(data=st.data(), served=st.booleans())
    def end(self, data: st.DataObject, served: bool) -> None:
        if not self.running:
            return
        entry = data.draw(st.sampled_from(self.running))
        self.running.remove(entry)
        was_open = entry.state is State.OPEN
        if served:
            self.runs.served(entry, self.now)
        else:
            self.runs.forget(entry)
        assert (entry.state is State.KEPT) is (served and was_open)
        if entry.state is State.KEPT:
            self.kept.append(entry)

    @rule(seconds=st.floats(0, KEEP_SECONDS))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def bounds_hold(self) -> None:
        known = [entry for entry in self.running + self.kept if entry.state is not State.FORGOTTEN]
        assert self.runs.total_bytes == sum(entry.size for entry in known) <= 1000
        assert len(self.runs) == len(known) <= 4
        assert all(entry.size <= 400 for entry in known)


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestMachine = Machine.TestCase


# ---- retries without a key


@pytest.mark.parametrize(
    ("gone", "begun", "patience", "age", "expected"),
    [
        (False, False, 60.0, 59.0, Kinship.NONE),
        (False, True, 60.0, 90.0, Kinship.NONE),
        (False, False, 60.0, 60.0, Kinship.JOINS),
        (False, False, None, 600.0, Kinship.NONE),
        (True, False, 60.0, 0.0, Kinship.JOINS),
        (True, True, 60.0, 0.0, Kinship.REPLACES),
    ],
    ids=["still waits", "is being answered", "waited", "says nothing", "gone early", "gone late"],
)
def test_what_a_retry_is_to_an_earlier_request(
    gone: bool, begun: bool, patience: float | None, age: float, expected: Kinship
) -> None:
    first = Attempt(count=0, since=NOW, patience_seconds=patience)
    assert kinship(first, 1, gone=gone, begun=begun, now=NOW + age) is expected


@given(st.integers(0, 5), st.integers(0, 5), st.booleans(), st.booleans())
def test_only_a_later_try_can_be_the_same_request(earlier: int, later: int, gone: bool, begun: bool) -> None:
    first = Attempt(count=earlier, since=NOW, patience_seconds=None)
    found = kinship(first, later, gone=gone, begun=begun, now=NOW)
    assert later > earlier or found is Kinship.NONE
