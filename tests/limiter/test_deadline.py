"""A limit moves both ways and expires once; only a limit that comes nearer costs a timer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.limiter.deadline import Deadline


class Timer:
    """A timer of `Clock`."""

    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Clock:
    """What a deadline needs of a loop."""

    def __init__(self) -> None:
        self.now = 0.0
        self.started = 0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, callback: Callable[[], None]) -> Timer:
        self.started += 1
        timer = Timer(at, callback)
        self.timers.append(timer)
        return timer

    def go_on(self, to: float) -> None:
        """Let time pass, with all timers on the way."""
        while due := [one for one in self.waiting if one.at <= to]:
            timer = min(due, key=lambda one: one.at)
            self.timers.remove(timer)
            self.now = timer.at
            timer.callback()
        self.now = to

    @property
    def waiting(self) -> list[Timer]:
        return [one for one in self.timers if not one.is_cancelled]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def expired() -> list[float]:
    """When the limit was reached."""
    return []


@pytest.fixture
def deadline(clock: Clock, expired: list[float]) -> Deadline:
    return Deadline(clock, lambda: expired.append(clock.now))  # type: ignore[arg-type]


def test_a_limit_is_reached_once(clock: Clock, deadline: Deadline, expired: list[float]) -> None:
    deadline.set(10)
    clock.go_on(9.9)
    assert expired == []
    clock.go_on(100)
    assert expired == [10]
    assert clock.waiting == []


@pytest.mark.parametrize("seconds", [1.0, 29.0])
def test_a_limit_that_comes_nearer_counts(
    clock: Clock, deadline: Deadline, expired: list[float], seconds: float
) -> None:
    deadline.set(60)
    clock.go_on(30)
    deadline.set(seconds)
    assert len(clock.waiting) == 1
    clock.go_on(1000)
    assert expired == [30 + seconds]


def test_a_limit_that_comes_nearer_after_a_timer_fired_too_early_counts(
    clock: Clock, deadline: Deadline, expired: list[float]
) -> None:
    deadline.set(10)
    deadline.set(60)
    clock.go_on(20)
    deadline.set(5)
    clock.go_on(1000)
    assert expired == [25]


def test_a_limit_that_moves_back_costs_no_timer(clock: Clock, deadline: Deadline, expired: list[float]) -> None:
    for now in range(100):
        clock.go_on(now / 10)
        deadline.set(10)
    assert clock.started == 1
    clock.go_on(1000)
    assert expired == [19.9]
    assert clock.started == 2


@pytest.mark.parametrize("end", [Deadline.clear, Deadline.close])
def test_a_limit_that_was_taken_away_is_never_reached_and_a_new_one_is(
    clock: Clock, deadline: Deadline, expired: list[float], end: Callable[[Deadline], None]
) -> None:
    deadline.set(10)
    end(deadline)
    clock.go_on(50)
    assert expired == []
    deadline.set(10)
    clock.go_on(100)
    assert expired == [60]


def test_what_is_closed_holds_no_timer(clock: Clock, deadline: Deadline) -> None:
    deadline.set(10)
    deadline.close()
    deadline.close()
    assert clock.waiting == []


def test_a_limit_may_be_set_again_by_what_happens_when_it_is_reached(clock: Clock) -> None:
    reached: list[float] = []

    def again() -> None:
        reached.append(clock.now)
        if len(reached) < 3:
            deadline.set(10)

    deadline = Deadline(clock, again)  # type: ignore[arg-type]
    deadline.set(10)
    clock.go_on(1000)
    assert reached == [10, 20, 30]
