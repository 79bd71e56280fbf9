"""Accounts that rest are forgotten once all has come back to them, one for each place, and never while in use."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.admission.accounts import Accounts
from penstock.api.ratelimits import QuotaScope, RateLimit

TEN_A_MINUTE = RateLimit(name="ten", limit=10, window_seconds=60, per=QuotaScope.ADDRESS)
"""One comes back every six seconds."""

SLOWER = TEN_A_MINUTE.model_copy(update={"window_seconds": 600})
FASTER = TEN_A_MINUTE.model_copy(update={"window_seconds": 6})


def accounts(maximum):
    """Return accounts that were full once, long ago: those that are kept are idle, and go first."""
    made = Accounts(maximum)
    put_in_force(made, TEN_A_MINUTE, now=-1000)
    for number in range(maximum + 1):
        used(made, f"long ago {number}", 10, -1000)
    made.overruns = 0
    return made


def put_in_force(accounts, *quotas, share=1.0, now):
    accounts.configure(lambda _: quotas, share=share, now=now)


def use(accounts, key, cost, now):
    """Charge a holder, as a request does that begins."""
    account = accounts.of(key, now)
    account.requests[0].meter.charge(cost, now)
    accounts.open(account, now)
    return account


def used(accounts, key, cost, now):
    account = use(accounts, key, cost, now)
    accounts.close(account, now)
    return account


def keeps(accounts, account, now):
    """Say whether a holder that comes now meets this account."""
    return accounts.of(account.key, now) is account


def test_an_account_that_is_open_is_not_forgotten_though_it_rested_before():
    few = accounts(3)
    used(few, "open", 1, 0)
    opened = use(few, "open", 1, 1)
    others = [used(few, key, 1, 2) for key in "ab"]
    for step in range(20):
        used(few, f"new {step}", 1, 1000 + 100 * step)
    assert keeps(few, opened, 5000)
    assert not any(keeps(few, other, 5000) for other in others)
    assert (len(few), few.overruns) == (3, 0)


def test_accounts_that_are_all_open_leave_only_the_one_not_used_for_longest_to_go():
    few = accounts(3)
    for key in "abc":
        used(few, key, 1, 0)
    opened = [use(few, key, 1, 1) for key in "abc"]
    new = use(few, "new", 1, 1000)
    assert [keeps(few, one, 1000) for one in (*opened, new)] == [False, True, True, True]
    assert (len(few), few.overruns) == (3, 1)


@pytest.mark.parametrize("times", [1, 2, 5])
def test_an_account_rests_only_when_it_was_closed_as_often_as_it_was_opened(times):
    few = accounts(2)
    used(few, "busy", 1, 0)
    for _ in range(times):
        busy = use(few, "busy", 1, 1)
    for _ in range(times - 1):
        few.close(busy, 2)
    used(few, "other", 1, 3)
    used(few, "new", 1, 1000)
    assert keeps(few, busy, 1000)
    few.close(busy, 1001)
    used(few, "newer", 10, 1001.5)
    used(few, "newest", 10, 1007.5)
    assert not keeps(few, busy, 1007.5)
    assert few.overruns == 0


def test_an_account_that_was_used_again_is_not_forgotten_before_it_is_idle():
    few = accounts(2)
    again = used(few, "again", 1, 0)  # would be idle at 6
    used(few, "again", 5, 5)  # is idle at 36
    other = used(few, "other", 1, 5)
    used(few, "new", 1, 20)
    assert keeps(few, again, 20)
    assert not keeps(few, other, 20)
    used(few, "newer", 9, 27)
    assert keeps(few, again, 27)
    newest = used(few, "newest", 1, 37)
    assert keeps(few, newest, 37)
    assert not keeps(few, again, 37)
    assert few.overruns == 0


def test_what_is_given_back_to_an_account_that_rested_before_brings_the_time_nearer():
    few = accounts(2)
    resting = used(few, "a", 5, 0)  # would be idle at 30
    use(few, "a", 5, 1)
    resting.requests[0].meter.refund(9, 2, charged_at=1)
    few.close(resting, 2)  # is idle at 6
    used(few, "b", 9, 2)
    used(few, "new", 1, 7)
    assert not keeps(few, resting, 7)
    assert few.overruns == 0


def test_an_account_that_was_idle_and_is_used_again_is_kept():
    few = accounts(2)
    again = used(few, "again", 1, 0)
    used(few, "other", 1, 100)
    used(few, "again", 10, 100)
    used(few, "new", 1, 110)
    assert keeps(few, again, 110)
    assert few.overruns == 0


@pytest.mark.parametrize(("quota", "share"), [(SLOWER, 1.0), (FASTER, 1.0), (TEN_A_MINUTE, 0.5)])
def test_a_change_of_quotas_neither_forgets_nor_doubles_anybody(quota, share):
    few = accounts(4)
    resting = [used(few, key, 5, 0) for key in "abc"]
    opened = use(few, "open", 5, 0)
    put_in_force(few, quota, share=share, now=1)
    assert len(few) == 4
    assert all(keeps(few, one, 1) for one in (*resting, opened))
    for number in range(3):
        used(few, f"new {number}", 1, 10_000)
    assert len(few) == 4
    assert keeps(few, opened, 10_000)
    assert not any(keeps(few, one, 10_000) for one in resting)
    assert few.overruns == 0


def test_after_a_change_that_puts_it_off_nobody_is_forgotten_at_the_time_of_before():
    few = accounts(2)
    first = used(few, "first", 1, 0)  # would be idle at 6, and is at 60
    put_in_force(few, SLOWER, now=0)
    second = used(few, "second", 9, 0)
    few.of("first", 5)
    used(few, "new", 1, 7)  # nobody is idle: the one not used for longest goes
    assert [keeps(few, one, 7) for one in (first, second)] == [True, False]
    assert few.overruns == 1


def test_what_was_ranked_before_a_change_and_after_it_is_forgotten_once():
    few = accounts(2)
    used(few, "a", 1, 0)
    put_in_force(few, SLOWER, now=0)
    used(few, "b", 9, 0)
    use(few, "c", 1, 1)  # ranks anew, and one goes
    for number in range(10):
        put_in_force(few, (SLOWER, TEN_A_MINUTE)[number % 2], now=10_000 * (number + 1))
        used(few, f"new {number}", 1, 10_000 * (number + 1))
        assert len(few) == 2
    assert few.overruns == 1


def test_nobody_is_kept_while_nobody_has_quotas_and_all_begin_anew_after_it():
    few = accounts(2)
    old = [used(few, "a", 10, 0), use(few, "b", 10, 0)]
    few.configure(None, share=1.0, now=1)
    assert len(few) == 0
    few.close(old[1], 2)
    put_in_force(few, TEN_A_MINUTE, now=3)
    assert len(few) == 0
    new = use(few, "a", 1, 4)
    for number in range(3):
        used(few, f"new {number}", 1, 1000 + 100 * number)
    assert keeps(few, new, 2000)
    assert not any(keeps(few, one, 2000) for one in old)
    assert (len(few), few.overruns) == (2, 0)


def test_one_that_was_dropped_while_it_rested_takes_nobody_with_it_when_its_time_comes():
    few = accounts(2)
    dropped = used(few, "a", 10, 0)
    used(few, "b", 9, 0)
    used(few, "c", 9, 1)
    assert not keeps(few, dropped, 1)
    again = use(few, "a", 1, 2)
    assert few.overruns == 2
    used(few, "d", 1, 1000)
    used(few, "e", 1, 1010)
    assert keeps(few, again, 1010)
    assert (len(few), few.overruns) == (2, 2)


@pytest.mark.parametrize("comes_back", [False, True])
def test_one_that_was_dropped_while_it_was_open_takes_nobody_with_it_once_it_is_closed(comes_back):
    few = accounts(2)
    dropped = use(few, "a", 1, 0)
    other = use(few, "b", 1, 0)
    used(few, "c", 1, 1)
    assert few.overruns == 1
    few.close(dropped, 2)
    again = use(few, "a", 1, 100) if comes_back else other
    few.close(other, 100)
    for number in range(4):
        used(few, f"new {number}", 1, 1000 + 100 * number)
    assert keeps(few, again, 2000) is comes_back
    assert (len(few), few.overruns) == (2, 1)


def test_one_that_was_forgotten_and_comes_back_is_kept_as_a_new_one():
    few = accounts(1)
    for step in range(200):
        for key in "ab":
            account = used(few, key, 1, 100.0 * step + (50 if key == "b" else 0))
            assert keeps(few, account, account.requests[0].meter.used(0))
    assert (len(few), few.overruns) == (1, 0)


def test_after_many_cycles_an_idle_account_goes_and_nobody_else():
    few = accounts(3)
    busy = use(few, "busy", 1, 0)
    for step in range(500):
        now = 10.0 * step
        used(few, "often", 1, now)
        used(few, "often", 1, now + 1)
        used(few, f"once {step}", 1, now + 2)
        few.close(busy, now + 3)
        assert use(few, "busy", 1, now + 3) is busy
    assert (len(few), few.overruns) == (3, 0)
    few.close(busy, 5000)
    for number in range(3):
        used(few, f"late {number}", 10, 20_000)
    assert not keeps(few, busy, 20_000)
    assert (len(few), few.overruns) == (3, 0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("use",) * 6 + ("close",) * 5 + ("ask", "change")),
        st.integers(0, 4),
        st.integers(1, 10),
        st.sampled_from((0.0, 0.0, 3.0, 13.0, 100.0)),
    ),
    max_size=80,
)


@settings(derandomize=True, max_examples=300)
@given(steps=STEPS)
def test_whoever_is_counted_stays_unless_nobody_is_idle_and_then_the_least_used_goes(steps):
    few = accounts(3)
    now, under_way = 0.0, []
    model = dict(few._kept)  # who is kept, the one not used for longest first
    for kind, number, cost, pause in steps:
        now += pause
        overruns = few.overruns
        if kind == "close" and under_way:
            account, charged = under_way.pop(number % len(under_way))
            account.requests[0].meter.refund(min(charged, cost - 1), now, charged_at=now)
            few.close(account, now)
        elif kind == "ask":
            key = "abcde"[number]
            account = few.of(key, now)
            assert (model.get(key) is account) is (key in model)
            if key in model:
                model[key] = model.pop(key)
        elif kind == "change":
            put_in_force(few, (TEN_A_MINUTE, SLOWER, FASTER)[number % 3], share=(0.5, 1.0)[cost % 2], now=now)
            for account in model.values():
                few.of(account.key, now)  # all are reached by it now, in the same order
        elif kind == "use":
            key = "abcde"[number]
            full = key not in model and len(model) == 3
            idle = [one for one in model.values() if one.open == 0 and one.requests[0].meter.reset_seconds(now) <= 0]
            account = use(few, key, cost, now)
            under_way.append((account, cost))
            if key in model:
                assert model.pop(key) is account
            model[key] = account
            if full:
                gone = [one for one in list(model.values()) if few._kept.get(one.key) is not one]
                assert gone == gone[:1] != []
                assert gone[0] in idle if idle else gone[0] is next(iter(model.values()))
                assert few.overruns - overruns == (0 if idle else 1)
                del model[gone[0].key]
            else:
                assert few.overruns == overruns
        assert len(few) == len(model)
        assert dict(few._kept) == model
