"""Who goes at once, who waits, who is refused."""

import pytest

from penstock.admission.ask import Ask, Dropped, Granted, Waiting
from penstock.admission.bands import Bands
from penstock.admission.gate import Gate
from penstock.admission.limit import Limit
from penstock.admission.permit import Outcome, Permit, PermitError
from penstock.admission.shed import Shed
from penstock.api.admission import BUILT_IN_CLASSES, NORMAL, PriorityClass

ONE_CLASS = (PriorityClass(name=NORMAL),)


def gate_of(limit=2, *, classes=ONE_CLASS, **settings):
    return Gate(Bands(classes), Limit(limit, ceiling=1000), **settings)


def request(band=NORMAL, tenant="a", *, budget=30.0, **fields):
    return Ask(band=band, tenant=tenant, budget_seconds=budget, **fields)


def fill(gate, times, now=0.0, **fields):
    permits = [gate.ask(request(**fields), now) for _ in range(times)]
    assert all(isinstance(permit, Permit) for permit in permits)
    return permits


def granted(events):
    return [event.waiting for event in events if isinstance(event, Granted)]


def dropped(events):
    return {event.waiting: event.shed for event in events if isinstance(event, Dropped)}


def test_as_many_go_at_once_as_the_limit_says_and_the_next_waits():
    gate = gate_of(3)
    fill(gate, 3)
    assert isinstance(gate.ask(request(), 0.0), Waiting)
    assert (gate.in_flight, gate.depth) == (3, 1)


def test_a_returned_permit_goes_to_who_waits_and_says_how_long_that_was():
    gate = gate_of(1)
    [permit] = fill(gate, 1)
    waiting = gate.ask(request(), 1.0)
    assert gate.advance(1.0) == []
    permit.finish(Outcome.SUCCESS, 5.0)
    [event] = gate.advance(5.0)
    assert (event.waiting, event.waited_seconds) == (waiting, 4.0)
    event.permit.finish(Outcome.SUCCESS, 6.0)
    assert (gate.in_flight, gate.depth, gate.books.admitted) == (0, 0, 2)


def test_nobody_goes_before_those_whose_turn_it_is_already():
    gate = gate_of(1)
    [permit] = fill(gate, 1)
    first = gate.ask(request(), 0.0)
    permit.cancel(1.0)
    late = gate.ask(request(band="no-such-class", tenant="b"), 1.0)
    assert isinstance(late, Waiting)
    assert granted(gate.advance(1.0)) == [first]


def test_an_ask_for_several_choices_takes_as_many_places():
    gate = gate_of(4)
    [permit] = fill(gate, 1, requests=3)
    assert isinstance(gate.ask(request(requests=2), 0.0), Waiting)
    assert gate.in_flight == 3
    permit.cancel(1.0)
    assert len(granted(gate.advance(1.0))) == 1
    assert (gate.in_flight, gate.books.admitted, gate.books.cancelled, gate.books.drift) == (2, 5, 3, 0)


def test_a_large_ask_is_not_overtaken_by_small_ones():
    gate = gate_of(4)
    permits = fill(gate, 3)
    large = gate.ask(request(requests=4), 0.0)
    small = gate.ask(request(tenant="b"), 0.0)
    assert gate.advance(0.0) == []
    for permit in permits:
        permit.cancel(1.0)
    assert granted(gate.advance(1.0)) == [large]
    assert isinstance(small, Waiting)


def test_an_ask_above_the_limit_goes_alone():
    gate = gate_of(2)
    [permit] = fill(gate, 1)
    large = gate.ask(request(requests=5), 0.0)
    permit.cancel(1.0)
    assert granted(gate.advance(1.0)) == [large]
    assert isinstance(gate.ask(request(), 1.0), Waiting)


def test_prompts_in_work_are_bounded():
    gate = gate_of(10, prefill_limit=100)
    first, _ = fill(gate, 2, prefill_tokens=50)
    waiting = gate.ask(request(prefill_tokens=1), 0.0)
    assert isinstance(waiting, Waiting)
    first.first_byte(1.0)
    assert granted(gate.advance(1.0)) == [waiting]
    assert gate.prefill_backlog == 51


def test_a_prompt_above_the_bound_goes_when_no_other_is_in_work():
    gate = gate_of(10, prefill_limit=100)
    [first] = fill(gate, 1, prefill_tokens=1)
    large = gate.ask(request(prefill_tokens=5000), 0.0)
    assert gate.advance(0.0) == []
    first.first_byte(1.0)
    assert granted(gate.advance(1.0)) == [large]


@pytest.mark.parametrize("end", ["finish", "cancel"])
@pytest.mark.parametrize("answered", [True, False], ids=["after the first byte", "before the first byte"])
def test_whatever_the_end_everything_is_given_back(end, answered):
    gate = gate_of(10, prefill_limit=100)
    [permit] = fill(gate, 1, prefill_tokens=70)
    if answered:
        permit.first_byte(1.0)
    permit.cancel(2.0) if end == "cancel" else permit.finish(Outcome.DROPPED, 2.0)
    with pytest.raises(PermitError):
        permit.cancel(3.0)
    assert (gate.in_flight, gate.prefill_backlog, gate.books.drift) == (0, 0, 0)
    assert len(fill(gate, 10, now=3.0)) == 10


@pytest.mark.parametrize(("queue_limit", "places"), [(None, 20), (3, 3), (0, 0)], ids=["10 times L", "as set", "none"])
def test_the_queue_is_bounded(queue_limit, places):
    gate = gate_of(2, queue_limit=queue_limit)
    fill(gate, 2)
    answers = [gate.ask(request(), 0.0) for _ in range(places + 1)]
    assert all(isinstance(answer, Waiting) for answer in answers[:-1])
    assert answers[-1] is Shed.QUEUE_FULL
    assert gate.books.shed == {(NORMAL, Shed.QUEUE_FULL): 1}


def test_in_a_full_queue_a_higher_class_takes_the_place_of_the_newest_of_the_lowest_sheddable():
    gate = gate_of(1, classes=BUILT_IN_CLASSES, queue_limit=3)
    fill(gate, 1)
    normal, older, newer = (gate.ask(request(band), 0.0) for band in (NORMAL, "batch", "batch"))
    assert gate.ask(request("batch"), 1.0) is Shed.QUEUE_FULL
    assert isinstance(gate.ask(request(), 1.0), Waiting)
    assert dropped(gate.advance(1.0)) == {newer: Shed.LOW_PRIORITY}
    assert isinstance(gate.ask(request("interactive"), 2.0), Waiting)
    assert dropped(gate.advance(2.0)) == {older: Shed.LOW_PRIORITY}
    assert gate.ask(request("interactive"), 3.0) is Shed.QUEUE_FULL  # `normal` is not sheddable
    assert gate.books.shed["batch", Shed.LOW_PRIORITY] == 2
    assert isinstance(normal, Waiting)


def test_in_a_full_queue_a_tenant_below_its_share_takes_the_place_of_a_flood():
    gate = gate_of(1, queue_limit=4)
    fill(gate, 1)
    flood = [gate.ask(request(tenant="flood"), 0.0) for _ in range(4)]
    assert gate.ask(request(tenant="flood"), 0.0) is Shed.QUEUE_FULL
    assert isinstance(gate.ask(request(tenant="b"), 0.0), Waiting)
    assert dropped(gate.advance(0.0)) == {flood[-1]: Shed.QUEUE_FULL}
    assert gate.depth == 4


def test_who_has_waited_as_long_as_it_may_is_dropped_then_and_not_before():
    gate = gate_of(1)
    [permit] = fill(gate, 1)
    waiting = gate.ask(request(budget=5.0), 10.0)
    gate.ask(request(budget=50.0), 10.0)
    assert gate.wake_at() == 15.0
    assert gate.advance(14.9) == []
    permit.cancel(15.0)
    [timeout, other] = gate.advance(15.0)
    assert (timeout.waiting, timeout.shed, timeout.waited_seconds) == (waiting, Shed.QUEUE_TIMEOUT, 5.0)
    assert isinstance(other, Granted)
    assert gate.wake_at() is None


def test_who_may_not_wait_is_told_at_once():
    gate = gate_of(1)
    fill(gate, 1)
    assert gate.ask(request(budget=0.0), 0.0) is Shed.WAIT_TOO_LONG


def busy_gate():
    """Return a gate with one place, one request waiting, and one completion each second until second 20."""
    gate = gate_of(1)
    [permit] = fill(gate, 1)
    gate.ask(request(), 0.0)
    for second in range(1, 21):
        gate.ask(request(), second - 0.5)
        permit.finish(Outcome.SUCCESS, float(second))
        [event] = gate.advance(float(second))
        permit = event.permit
    assert gate.depth == 1
    return gate


def test_who_would_wait_too_long_is_told_at_once():
    gate = busy_gate()
    assert gate.ask(request(budget=1.9), 20.0) is Shed.WAIT_TOO_LONG
    assert isinstance(gate.ask(request(budget=2.1), 20.0), Waiting)


def test_the_wait_of_a_newcomer_does_not_grow_with_the_backlog_of_another():
    gate = busy_gate()
    for _ in range(8):
        gate.ask(request(tenant="flood"), 20.0)
    assert gate.ask(request(tenant="flood", budget=5.0), 20.0) is Shed.WAIT_TOO_LONG
    assert isinstance(gate.ask(request(tenant="new", budget=5.0), 20.0), Waiting)


def test_who_needs_no_place_of_another_does_not_wait_for_one():
    """One place is free, and only the prompt of another is in the way."""
    gate = busy_gate()
    gate.limit.set(4, "room")
    gate.prefill_limit = 10
    assert len(gate.advance(20.0)) == 1
    fill(gate, 1, now=20.0, prefill_tokens=10)
    assert gate.in_flight == 3
    assert isinstance(gate.ask(request(budget=0.9, prefill_tokens=1), 20.0), Waiting)


def test_its_own_prompt_counts_into_the_wait():
    gate = gate_of(100, prefill_limit=100)
    for second in range(10):  # 100 tokens a second
        [permit] = fill(gate, 1, now=float(second), prefill_tokens=100)
        permit.first_byte(second + 1.0)
    fill(gate, 1, now=10.0, prefill_tokens=100)
    assert gate.ask(request(prefill_tokens=150, budget=2.4), 10.0) is Shed.WAIT_TOO_LONG
    assert isinstance(gate.ask(request(prefill_tokens=150, budget=2.6), 10.0), Waiting)


def test_bands_are_served_strictly():
    gate = gate_of(1, classes=BUILT_IN_CLASSES)
    [permit] = fill(gate, 1)
    waiting = {band: [gate.ask(request(band), 0.0) for _ in range(2)] for band in ("batch", NORMAL, "interactive")}
    order = []
    for _ in range(6):
        permit.finish(Outcome.SUCCESS, 1.0)
        [event] = gate.advance(1.0)
        order.append(event.waiting)
        permit = event.permit
    assert order == [*waiting["interactive"], *waiting[NORMAL], *waiting["batch"]]


def test_the_last_part_of_the_limit_is_for_higher_bands():
    gate = gate_of(10, classes=BUILT_IN_CLASSES)
    fill(gate, 6, band="batch")
    assert isinstance(gate.ask(request("batch"), 0.0), Waiting)
    fill(gate, 3, band=NORMAL)
    assert isinstance(gate.ask(request(NORMAL), 0.0), Waiting)
    fill(gate, 1, band="interactive")
    assert isinstance(gate.ask(request("interactive"), 0.0), Waiting)


def test_nobody_below_goes_while_a_higher_one_waits():
    gate = gate_of(10, classes=BUILT_IN_CLASSES, prefill_limit=100)
    [permit] = fill(gate, 1, band="interactive", prefill_tokens=60)
    large = gate.ask(request("interactive", prefill_tokens=60), 0.0)
    small = gate.ask(request("batch", prefill_tokens=1), 0.0)
    assert isinstance(small, Waiting)
    assert gate.advance(0.0) == []
    permit.first_byte(1.0)
    assert granted(gate.advance(1.0)) == [large, small]


BULKHEADS = (
    PriorityClass(name="interactive", ceiling_percent=50),
    PriorityClass(name=NORMAL, ceiling_percent=100),
    PriorityClass(name="batch", ceiling_percent=30, reserved_percent=20, sheddable=True),
)


def test_only_what_is_reserved_for_a_lower_band_is_open_to_it_while_a_higher_one_is_at_its_ceiling():
    gate = gate_of(10, classes=BULKHEADS)
    fill(gate, 5, band="interactive")
    held = gate.ask(request("interactive"), 0.0)
    normal = gate.ask(request(NORMAL), 0.0)
    assert isinstance(normal, Waiting)
    gate.ask(request("batch"), 0.0)  # normal may have to go first: that is settled by advance
    assert [one.ask.band for one in granted(gate.advance(0.0))] == ["batch"]
    assert (gate.in_flight, gate.depth_by_band) == (6, {"interactive": 1, NORMAL: 1, "batch": 0})
    normal.leave(1.0)
    assert isinstance(gate.ask(request("batch"), 1.0), Permit)
    assert isinstance(gate.ask(request("batch"), 1.0), Waiting)
    assert held.ask.band == "interactive"
    assert gate.advance(1.0) == []


@pytest.mark.parametrize("hindrance", ["prompts", "a large ask"])
def test_a_reserve_is_not_open_while_a_higher_one_waits_for_anything_but_its_ceiling(hindrance):
    gate = gate_of(10, classes=BULKHEADS, prefill_limit=100)
    [permit] = fill(gate, 1, band="interactive", prefill_tokens=60)
    fields = {"prefill_tokens": 60} if hindrance == "prompts" else {"requests": 6}
    higher = gate.ask(request("interactive", **fields), 0.0)
    lower = gate.ask(request("batch"), 0.0)
    assert isinstance(lower, Waiting)
    assert gate.advance(0.0) == []
    permit.cancel(1.0)
    assert granted(gate.advance(1.0))[0] is higher


def test_a_higher_band_that_wants_what_is_free_goes_before_a_lower_one_with_a_reserve():
    gate = gate_of(2, classes=(PriorityClass(name=NORMAL), PriorityClass(name="batch", reserved_percent=50)))
    first, _ = fill(gate, 2)
    lower, higher = gate.ask(request("batch"), 0.0), gate.ask(request(NORMAL), 0.0)
    first.cancel(1.0)
    assert granted(gate.advance(1.0)) == [higher]
    assert isinstance(lower, Waiting)


def test_a_batch_flood_never_takes_the_last_reserved_interactive_permit():
    classes = (
        PriorityClass(name="interactive", reserved_percent=10),
        PriorityClass(name=NORMAL),
        *BUILT_IN_CLASSES[2:],
    )
    gate = gate_of(4, classes=classes)
    for _ in range(50):
        gate.ask(request("batch", tenant="flood"), 0.0)
        gate.ask(request(NORMAL, tenant="flood"), 0.0)
        gate.advance(0.0)
    assert gate.in_flight == 3
    assert isinstance(gate.ask(request("interactive"), 0.0), Permit)


def test_with_one_place_every_class_can_run():
    for band in ("interactive", NORMAL, "batch"):
        gate = gate_of(1, classes=BUILT_IN_CLASSES)
        assert isinstance(gate.ask(request(band), 0.0), Permit)


def test_who_leaves_the_queue_is_counted_and_gives_its_place_to_others():
    gate = gate_of(4)
    fill(gate, 3)
    large, small = gate.ask(request(requests=4), 0.0), gate.ask(request(), 0.0)
    large.leave(1.0)
    assert granted(gate.advance(1.0)) == [small]
    assert (gate.books.left, gate.depth) == (4, 0)
    with pytest.raises(PermitError):
        large.leave(2.0)


def test_who_leaves_after_being_dropped_is_not_told_of_it():
    gate = gate_of(1)
    fill(gate, 1)
    waiting = gate.ask(request(budget=5.0), 0.0)
    gate.ask(request(), 6.0)  # notices that the first has waited too long
    waiting.leave(6.0)
    assert dropped(gate.advance(6.0)) == {}
    assert gate.books.shed == {(NORMAL, Shed.QUEUE_TIMEOUT): 1}
    assert gate.books.left == 0


def test_a_raised_limit_lets_more_go_and_a_lowered_one_recalls_nobody():
    gate = gate_of(1)
    permits = fill(gate, 1)
    for _ in range(3):
        gate.ask(request(), 0.0)
    gate.limit.set(3, "room")
    events = gate.advance(0.0)
    permits += [event.permit for event in events]
    assert gate.in_flight == 3
    gate.limit.set(1, "overload")
    permits.pop().cancel(1.0)
    permits.pop().cancel(1.0)
    assert gate.advance(1.0) == []
    permits.pop().cancel(2.0)
    assert len(gate.advance(2.0)) == 1


def test_a_new_policy_keeps_permits_and_places_and_the_classes_that_are_gone_are_normal():
    gate = gate_of(4, classes=BUILT_IN_CLASSES)
    permits = [gate.ask(request(band), 0.0) for band in ("batch", "interactive", NORMAL, "interactive")]
    places = [gate.ask(request(band, budget=20.0), 1.0) for band in (NORMAL, "batch", "interactive")]
    gate.configure(
        Bands([PriorityClass(name="urgent"), PriorityClass(name=NORMAL)]), queue_limit=1, shadow=False, now=2.0
    )
    assert {gate.bands.names[permit.band] for permit in permits} == {NORMAL}
    assert gate.depth_by_band == {"urgent": 0, NORMAL: 3}
    assert gate.ask(request(), 2.0) is Shed.QUEUE_FULL
    gate.configure(Bands(BUILT_IN_CLASSES), queue_limit=None, shadow=False, now=3.0)
    assert gate.depth_by_band == {"interactive": 0, NORMAL: 3, "batch": 0}
    places.pop().leave(3.0)
    for permit in permits:
        permit.finish(Outcome.SUCCESS, 4.0)
    events = gate.advance(4.0)
    assert set(granted(events)) == set(places)
    assert [event.waited_seconds for event in events] == [3.0, 3.0]
    assert {gate.bands.names[event.permit.band] for event in events} == {NORMAL}
    assert (gate.in_flight, gate.books.drift) == (2, 0)


def test_turns_survive_a_new_policy():
    gate = gate_of(1)
    [permit] = fill(gate, 1)
    for tenant in ("a", "a", "a", "b", "b", "b"):
        gate.ask(request(tenant=tenant), 0.0)
    order = []
    for _ in range(6):
        permit.finish(Outcome.SUCCESS, 1.0)
        [event] = gate.advance(1.0)
        permit = event.permit
        order.append(event.waiting.ask.tenant)
        gate.configure(Bands([PriorityClass(name=NORMAL)]), queue_limit=None, shadow=False, now=1.0)
    assert order == ["a", "b", "a", "b", "a", "b"]


def test_retries_are_counted_when_they_are_admitted():
    gate = gate_of(2, queue_limit=0)
    for retry in (True, False, True):
        gate.ask(request(retry=retry), 0.0)
    assert (gate.books.retries, gate.books.admitted, gate.books.asked) == (1, 2, 3)
