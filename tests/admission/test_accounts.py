import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.admission.account import Account
from penstock.admission.accounts import Accounts
from penstock.api.ratelimits import QuotaAlgorithm, QuotaScope, RateLimit

TEN_A_MINUTE = RateLimit(name="ten", limit=10, window_seconds=60, per=QuotaScope.ADDRESS)


def accounts(maximum, quotas=(TEN_A_MINUTE,), share=1.0):
    made = Accounts(maximum)
    made.configure(lambda _: quotas, share=share, now=0)
    return made


def spend(accounts, key, cost, now):
    """Charge a holder, as a request does that begins."""
    account = accounts.of(key, now)
    account.requests[0].meter.charge(cost, now)
    accounts.open(account, now)
    return account


def spent(accounts, key, cost, now):
    account = spend(accounts, key, cost, now)
    accounts.close(account, now)
    return account


def remembered(accounts, key):
    return accounts._kept.get(key)


def test_one_that_was_only_asked_for_is_not_kept():
    few = accounts(2)
    assert isinstance(few.of("a", 0), Account)
    assert len(few) == 0


def test_nobody_has_an_account_where_nobody_has_quotas():
    none = Accounts(2)
    assert none.of("a", 0) is None


def test_the_first_to_go_is_one_to_which_everything_has_come_back():
    few = accounts(2)
    spent(few, "old but charged", 10, 0)
    spent(few, "idle", 1, 1)
    spent(few, "new", 1, 8)
    assert remembered(few, "idle") is None
    assert remembered(few, "old but charged").requests[0].meter.used(8) == 9
    assert few.overruns == 0


def test_when_none_is_idle_the_one_not_used_for_longest_goes_and_is_counted():
    few = accounts(2)
    spent(few, "a", 10, 0)
    spent(few, "b", 5, 1)
    few.of("a", 2)
    spent(few, "c", 1, 3)
    assert remembered(few, "b") is None
    assert few.overruns == 1


def test_one_with_a_request_under_way_stays_although_its_bucket_is_full_again():
    few = accounts(2)
    open_one = spend(few, "open", 1, 0)
    spent(few, "idle", 1, 1)
    spent(few, "new", 1, 1000)
    assert remembered(few, "open") is open_one
    assert few.overruns == 0


def test_what_is_given_back_makes_it_idle_at_once():
    few = accounts(2)
    account = spend(few, "a", 10, 0)
    spent(few, "b", 1, 0)
    account.requests[0].meter.refund(10, 1, charged_at=0)
    few.close(account, 1)
    spent(few, "c", 1, 1)
    assert remembered(few, "a") is None
    assert few.overruns == 0


def test_one_that_was_used_again_is_not_forgotten_when_it_would_have_been_idle():
    few = accounts(2)
    used_again = spent(few, "used again", 1, 0)
    spent(few, "used again", 10, 5)
    spent(few, "idle", 1, 5)
    spent(few, "new", 1, 12)
    assert remembered(few, "used again") is used_again
    assert remembered(few, "idle") is None
    assert few.overruns == 0


def test_one_that_was_dropped_may_still_be_closed():
    few = accounts(1)
    dropped = spend(few, "a", 1, 0)
    spend(few, "b", 1, 0)
    few.close(dropped, 1)
    assert len(few) == 1
    assert few.overruns == 1


def test_a_higher_limit_is_seen_when_room_is_needed():
    few = accounts(2)
    spent(few, "a", 10, 0)
    spent(few, "b", 10, 0)
    few.configure(lambda _: (TEN_A_MINUTE.model_copy(update={"limit": 600, "burst": 10}),), share=1.0, now=0)
    spent(few, "c", 1, 2)
    assert few.overruns == 0
    assert len(few) == 2


def test_a_change_of_the_share_reaches_an_account_as_of_the_moment_of_the_change():
    few = accounts(2)
    account = spent(few, "a", 10, 0)
    few.configure(lambda _: (TEN_A_MINUTE,), share=0.5, now=12)
    assert few.of("a", 24) is account
    assert account.requests[0].meter.remaining(24) == 3


def test_entries_of_accounts_that_were_used_again_do_not_pile_up():
    few = accounts(3)
    for step in range(2000):
        spent(few, f"key {step % 3}", 1, step * 0.01)
    assert len(few._resting) <= 2 * 3 + 64 + 1


@pytest.mark.parametrize("old", list(QuotaAlgorithm))
@pytest.mark.parametrize("new", list(QuotaAlgorithm))
def test_another_algorithm_does_not_forget_what_is_used(old, new):
    few = accounts(2, (TEN_A_MINUTE.model_copy(update={"algorithm": old}),))
    account = spent(few, "a", 8, 0)
    few.configure(lambda _: (TEN_A_MINUTE.model_copy(update={"algorithm": new}),), share=1.0, now=0)
    few.of("a", 0)
    assert account.requests[0].meter.used(0) == 8


steps = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 10), st.sampled_from((0.0, 0.5, 7.0, 100.0)), st.booleans()),
    max_size=60,
)


@settings(derandomize=True)
@given(steps=steps, algorithm=st.sampled_from(list(QuotaAlgorithm)))
def test_nobody_who_is_counted_is_forgotten_while_another_could_be(steps, algorithm):
    few = accounts(3, (TEN_A_MINUTE.model_copy(update={"algorithm": algorithm}),))
    now, under_way = 0.0, []
    for key, cost, pause, closes in steps:
        now += pause
        if closes and under_way:
            account = under_way.pop(cost % len(under_way))
            account.requests[0].meter.refund(cost % 3, now, charged_at=now)
            few.close(account, now)
            continue
        before = dict(few._kept)
        overruns = few.overruns
        room = key in before or len(before) < 3
        idle = [one for one in before.values() if one.open == 0 and one.requests[0].meter.used(now) == 0]
        under_way.append(spend(few, key, cost, now))
        assert few.overruns - overruns == (0 if room or idle else 1)
        assert len(few) <= 3
        gone = [one for name, one in before.items() if name not in few._kept]
        assert all(one in idle for one in gone) or not idle
