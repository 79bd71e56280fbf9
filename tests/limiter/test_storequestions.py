"""Questions that wait for the store: none longer than its time, and no store is blamed for this process's own delay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from penstock.limiter.asking import Asking
from penstock.limiter.storequestions import OWN_LAG_SECONDS, Questions

BUDGET_SECONDS = 1.0


@dataclass
class Timer:
    due: float
    call: Callable[[], None]
    live: bool = True

    def when(self) -> float:
        return self.due

    def cancel(self) -> None:
        self.live = False


@dataclass
class Loop:
    """A loop whose time passes when the test says so; its timers may be called late."""

    now: float = 100.0
    timers: list[Timer] = field(default_factory=list)

    def time(self) -> float:
        return self.now

    def call_at(self, due: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(due, call))
        return self.timers[-1]

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        return self.call_at(self.now + seconds, call)

    def run_until(self, now: float) -> None:
        """Let time pass at once, then call what is due."""
        self.now = now
        for timer in [one for one in self.timers if one.live and one.due <= now]:
            timer.live = False
            timer.call()


class Scene:
    def __init__(self) -> None:
        self.loop = Loop()
        self.late = 0
        self.questions = Questions(cast("Any", self.loop), budget_seconds=BUDGET_SECONDS, late=self._note)

    def _note(self) -> None:
        self.late += 1

    def ask(self) -> Asking:
        asking = Asking(cast("Any", None), cast("Any", None), asked_at=self.loop.now)
        asking.await_answer(lambda _found: None)
        self.questions.add(asking)
        return asking

    def due(self) -> list[float]:
        return [one.due for one in self.loop.timers if one.live]


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize("is_sent", [False, True], ids=["not sent", "sent"])
def test_one_that_has_waited_for_its_time_is_late(scene: Scene, is_sent: bool) -> None:
    scene.ask()
    if is_sent:
        scene.questions.send(1)
    scene.loop.run_until(100.9)
    assert scene.late == 0
    scene.loop.run_until(101.0)
    assert scene.late == 1


def test_the_oldest_that_is_awaited_is_watched(scene: Scene) -> None:
    first = scene.ask()
    scene.loop.run_until(100.5)
    scene.ask()
    assert scene.due() == [101.0]
    first.tell(None)
    scene.loop.run_until(101.0)
    assert (scene.late, scene.due()) == (0, [101.5])
    scene.loop.run_until(101.5)
    assert scene.late == 1


def test_the_oldest_go_first_and_those_that_are_answered_are_watched_no_more(scene: Scene) -> None:
    asked = [scene.ask() for _ in range(3)]
    assert scene.questions.send(2) == asked[:2]
    assert scene.questions
    scene.questions.answered()
    assert scene.questions.send(2) == asked[2:]
    assert not scene.questions
    scene.questions.answered()
    scene.questions.watch()
    assert scene.due() == []


def test_a_timer_that_is_late_itself_waits_once_more_and_no_longer(scene: Scene) -> None:
    scene.ask()
    late = 101.0 + 2 * OWN_LAG_SECONDS
    scene.loop.run_until(late)
    assert (scene.late, scene.due()) == (0, [late + OWN_LAG_SECONDS])
    scene.loop.run_until(late + 9)
    assert scene.late == 1


def test_those_that_are_dropped_are_returned_and_watched_no_more(scene: Scene) -> None:
    asked = [scene.ask() for _ in range(3)]
    scene.questions.send(1)
    assert scene.questions.drop() == asked
    assert (bool(scene.questions), scene.due()) == (False, [])
