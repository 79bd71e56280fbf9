"""The order in which tenants of one band go."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admission.ask import Ask, Waiting
from penstock.admission.fairqueue import FairQueue


def entry(tenant="a", *, cost=1.0, weight=1.0, since=0.0, budget=100.0, requests=1, tokens=0):
    ask = Ask(
        band="normal",
        tenant=tenant,
        weight=weight,
        cost=cost,
        budget_seconds=budget,
        requests=requests,
        prefill_tokens=tokens,
    )
    return Waiting(None, ask, band=0, since=since)


def queue_of(*entries):
    queue = FairQueue()
    for one in entries:
        queue.push(one)
    return queue


def serve(queue, now=0.0):
    head = queue.head(now)
    queue.take(head)
    return head


def served_tenants(queue, times, now=0.0):
    return [serve(queue, now).ask.tenant for _ in range(times)]


def test_one_tenant_is_served_in_the_order_of_arrival():
    entries = [entry() for _ in range(5)]
    queue = queue_of(*entries)
    assert [serve(queue) for _ in entries] == entries
    assert queue.head(0.0) is None


def test_the_head_stays_the_same_until_something_changes():
    queue = queue_of(entry("a", cost=9), entry("b"), entry("c", cost=5))
    assert len({queue.head(0.0) for _ in range(10)}) == 1


def test_a_newcomer_does_not_wait_for_the_whole_backlog_of_another():
    queue = queue_of(*(entry("flood") for _ in range(100)))
    served_tenants(queue, 10)
    queue.push(entry("newcomer"))
    assert "newcomer" in served_tenants(queue, 2)


def test_tenants_with_equal_requests_take_turns():
    queue = queue_of(*(entry(tenant) for tenant in "abc" for _ in range(10)))
    turns = served_tenants(queue, 30)
    assert all(set(turns[start : start + 3]) == set("abc") for start in range(0, 30, 3))


def test_when_the_last_request_of_a_tenant_goes_the_next_tenant_has_its_turn():
    queue = queue_of(*(entry(tenant) for tenant in "abcd"))
    assert served_tenants(queue, 4) == ["a", "b", "c", "d"]


def test_cost_is_shared_and_not_the_number_of_requests():
    queue = queue_of(*(entry("large", cost=10) for _ in range(50)), *(entry("small", cost=1) for _ in range(500)))
    turns = served_tenants(queue, 220)
    assert turns.count("small") / turns.count("large") == pytest.approx(10, rel=0.05)


@pytest.mark.parametrize("weights", [(1, 1, 1), (1, 2, 5), (1, 10, 100), (0.1, 1, 3)], ids=str)
def test_weights_are_obeyed_within_five_per_cent(weights):
    """Every tenant always has 20 requests of very different cost waiting."""
    costs = random.Random(1)
    queue = FairQueue()
    served = {f"{index}": 0.0 for index in range(len(weights))}

    def push(index):
        cost = float(round(costs.lognormvariate(6, 1)))
        queue.push(entry(f"{index}", cost=cost, weight=weights[index]))

    for index in range(len(weights)):
        for _ in range(20):
            push(index)
    for _ in range(20000):
        head = serve(queue)
        served[head.ask.tenant] += head.ask.cost
        push(int(head.ask.tenant))
    total = sum(served.values())
    for index, weight in enumerate(weights):
        assert served[f"{index}"] / total == pytest.approx(weight / sum(weights), rel=0.05)


def test_coming_back_brings_no_credit():
    queue = queue_of(*(entry("busy", cost=10) for _ in range(200)), entry("guest", cost=10))
    served_tenants(queue, 100)  # the guest is served, then away for long
    for _ in range(50):
        queue.push(entry("guest", cost=10))
    turns = served_tenants(queue, 40)
    assert abs(turns.count("guest") - turns.count("busy")) <= 2


def test_a_request_far_dearer_than_all_others_gets_its_turn():
    queue = queue_of(entry("large", cost=1e6), *(entry("small", cost=1.0) for _ in range(5000)))
    assert serve(queue_of(entry("large", cost=1e6))).ask.tenant == "large"
    turns = served_tenants(queue, 5001)
    assert turns.count("large") == 1


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0, 1e9), st.floats(0.001, 1000)), max_size=60))
def test_everything_that_waits_is_served_once_whatever_it_costs(wanted):
    entries = [entry(tenant, cost=cost, weight=weight) for tenant, cost, weight in wanted]
    queue = queue_of(*entries)
    served = [serve(queue) for _ in entries]
    assert set(served) == set(entries)
    assert (len(queue), queue.requests, queue.prefill_tokens, queue.next_deadline) == (0, 0, 0, None)


@given(
    st.lists(st.floats(1, 1000), min_size=20, max_size=40),
    st.lists(st.floats(1, 1000), min_size=20, max_size=40),
)
def test_no_tenant_gets_ahead_by_more_than_two_of_the_dearest(first, second):
    queue = queue_of(*(entry("a", cost=cost) for cost in first), *(entry("b", cost=cost) for cost in second))
    served = {"a": 0.0, "b": 0.0}
    waiting = {"a": len(first), "b": len(second)}
    while all(waiting.values()):
        head = serve(queue)
        served[head.ask.tenant] += head.ask.cost
        waiting[head.ask.tenant] -= 1
        assert abs(served["a"] - served["b"]) <= 2 * max(first + second)


@pytest.mark.parametrize(("now", "goes"), [(70.0, 0), (70.1, 2)], ids=["at 70 %", "after 70 %"])
def test_the_newest_goes_first_once_the_oldest_has_used_most_of_its_budget(now, goes):
    entries = [entry(since=float(since)) for since in (0, 10, 60)]
    assert queue_of(*entries).head(now) is entries[goes]


def test_what_has_waited_too_long_is_taken_out_in_the_order_of_its_end():
    long, short, middle = (entry(tenant, budget=budget) for tenant, budget in (("a", 30), ("a", 10), ("b", 20)))
    queue = queue_of(long, short, middle)
    assert queue.next_deadline == 10
    assert queue.expire(9.9) == []
    assert queue.expire(20.0) == [short, middle]
    assert queue.next_deadline == 30
    assert queue.entries == [long]


@given(st.data())
def test_any_entry_can_be_taken_out_and_the_rest_stays_as_it_was(data):
    entries = [
        entry(tenant, cost=cost, requests=requests, tokens=tokens, budget=budget)
        for tenant, cost, requests, tokens, budget in data.draw(
            st.lists(
                st.tuples(
                    st.sampled_from("abc"),
                    st.integers(0, 99),
                    st.integers(1, 4),
                    st.integers(0, 99),
                    st.integers(1, 50),
                ),
                min_size=1,
                max_size=30,
            )
        )
    ]
    queue = queue_of(*entries)
    left = list(entries)
    for gone in data.draw(st.permutations(entries)):
        queue.head(0.0)
        queue.remove(gone)
        left.remove(gone)
        assert queue.entries == left
        assert queue.requests == sum(one.ask.requests for one in left)
        assert queue.prefill_tokens == sum(one.ask.prefill_tokens for one in left)
        assert queue.next_deadline == min((one.deadline for one in left), default=None)
        assert (queue.head(0.0) in left) if left else queue.head(0.0) is None


def test_what_went_leaves_nothing_behind():
    """A queue that turns over for ever must not grow, though deadlines of those that went lie far ahead."""
    queue = queue_of(entry(budget=0.5))
    for number in range(2000):
        queue.push(entry(f"tenant-{number}", budget=1000.0))
        queue.remove(queue.newest)
    assert len(queue._deadlines) < 50
    assert len(queue._ring) == 1


@pytest.mark.parametrize(
    ("tenant", "cost", "ahead"),
    [
        ("new", 1.0, (1, 10)),
        ("new", 3.0, (3, 30)),
        ("flood", 1.0, (9, 90)),
        ("new", 1000.0, (9, 90)),
    ],
    ids=["a newcomer waits for one turn", "a dear one for more", "the flood for itself", "at most for all"],
)
def test_who_goes_before_a_new_entry_is_told_by_fair_turns(tenant, cost, ahead):
    queue = queue_of(*(entry("flood", tokens=10) for _ in range(9)))
    assert queue.ahead(tenant, 1.0, cost) == ahead


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.sampled_from([0.5, 1, 3])), min_size=1, max_size=9),
    st.sampled_from("abc"),
    st.floats(0, 1e6),
    st.sampled_from([0.001, 0.5, 1, 1000]),
)
def test_what_goes_before_a_new_entry_is_a_part_of_what_waits(wanted, tenant, cost, weight):
    queue = queue_of(*(entry(name, cost=cost, weight=weight, tokens=7) for name, cost, weight in wanted))
    requests, tokens = queue.ahead(tenant, weight, cost)
    assert 0 <= requests <= len(wanted)
    assert 0 <= tokens <= 7 * len(wanted)


def test_nothing_goes_before_the_first():
    assert FairQueue().ahead("a", 1.0, 5.0) == (0, 0)


def test_the_place_of_a_full_queue_comes_from_who_has_the_most_for_its_weight():
    entries = [*(entry("many") for _ in range(6)), *(entry("heavy", weight=10) for _ in range(7)), entry("few")]
    queue = queue_of(*entries)
    assert queue.most_crowded("few", 1.0) is entries[5]
    assert queue.most_crowded("new", 1.0) is entries[5]


@pytest.mark.parametrize(
    ("waiting", "tenant"),
    [({"a": 5}, "a"), ({"a": 5, "b": 5}, "b"), ({"a": 2, "b": 1}, "b"), ({"a": 1, "b": 1}, "new"), ({}, "new")],
    ids=["alone", "equal", "would only swap", "one each", "empty"],
)
def test_nobody_yields_to_one_who_has_its_share(waiting, tenant):
    queue = queue_of(*(entry(name) for name, count in waiting.items() for _ in range(count)))
    assert queue.most_crowded(tenant, 1.0) is None


def test_a_changed_weight_counts_from_the_next_request_on():
    queue = queue_of(*(entry("a", weight=1) for _ in range(50)), *(entry("b", weight=1) for _ in range(50)))
    queue.push(entry("a", weight=4))
    turns = served_tenants(queue, 50)
    assert turns.count("a") == pytest.approx(40, abs=2)
