"""Memory of request bodies is taken and given back, and never above the limit."""

from penstock.limiter.bodybudget import BodyBudget


def test_the_body_budget_refuses_what_would_pass_it_and_takes_back() -> None:
    budget = BodyBudget(10)
    assert budget.take(10)
    assert not budget.take(1)
    budget.give(4)
    assert budget.take(4)
