"""Memory of request bodies is taken and given back, never above the limit; slow readers make room, others do not."""

from __future__ import annotations

from penstock.limiter.bodybudget import SLOW_SECONDS, BodyBudget


class Upload:
    """A body of ten bytes."""

    def __init__(self, budget: BodyBudget, now: float) -> None:
        self.given_up = False
        self._budget = budget
        assert budget.take(10)
        budget.came_on(self, now)

    def give_up_body(self) -> None:
        self.given_up = True
        self._budget.give(10)


def test_the_body_budget_refuses_what_would_pass_it_and_takes_back() -> None:
    budget = BodyBudget(10)
    assert budget.take(10)
    assert not budget.take(1)
    budget.give(4)
    assert budget.take(4)


def test_the_body_that_has_not_come_on_for_longest_makes_room() -> None:
    budget = BodyBudget(30)
    uploads = [Upload(budget, now) for now in (0.0, 1.0, 2.0)]
    budget.came_on(uploads[0], 3.0)
    budget.make_room(10, 3.0 + SLOW_SECONDS, spared=Upload(BodyBudget(10), 0))
    assert [upload.given_up for upload in uploads] == [False, True, False]
    assert budget.take(10)


def test_bodies_that_come_on_are_not_given_up() -> None:
    budget = BodyBudget(20)
    uploads = [Upload(budget, 0.0), Upload(budget, 0.0)]
    budget.make_room(10, SLOW_SECONDS - 0.1, spared=uploads[0])
    assert not any(upload.given_up for upload in uploads)
    assert not budget.take(1)


def test_nobody_makes_room_for_himself_or_after_his_end() -> None:
    budget = BodyBudget(20)
    spared, ended = Upload(budget, 0.0), Upload(budget, 0.0)
    budget.ended(ended)
    budget.make_room(10, 100.0, spared=spared)
    assert (spared.given_up, ended.given_up) == (False, False)


def test_nobody_is_given_up_while_there_is_room() -> None:
    budget = BodyBudget(30)
    upload = Upload(budget, 0.0)
    budget.make_room(20, 100.0, spared=Upload(BodyBudget(10), 0))
    assert not upload.given_up
