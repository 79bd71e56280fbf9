from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.admission.quotas import UNKNOWN_TENANT, QuotaRefusal, Quotas
from penstock.admission.reservation import Reservation, ReservationError
from penstock.admission.shed import Shed
from penstock.api.ratelimits import QuotaAlgorithm, QuotaScope, QuotaUnit, RateLimit, TenantQuota
from penstock.api.tenants import TenantClass, TenantLimits, TenantsPolicy

ADDRESS = "192.0.2.1"


def limit(name, number, unit=QuotaUnit.REQUESTS, per=QuotaScope.BACKEND, **fields):
    return RateLimit(name=name, limit=number, unit=unit, per=per, **fields)


def quotas(*limits, tenants=None, **fields):
    return Quotas(limits, tenants, now=0, **fields)


def reserve(quotas, now=0.0, *, tenant="t", address=ADDRESS, prompt=10, output=20):
    return quotas.reserve(tenant, address, requests=1, prompt_tokens=prompt, output_tokens=output, now=now)


def remaining(quotas, now=0.0, *, tenant="t", address=ADDRESS):
    return {view.name: view.remaining for view in quotas.view(tenant, address, now)}


def passed(quotas, count, **where):
    return sum(isinstance(reserve(quotas, **where), Reservation) for _ in range(count))


def test_without_quotas_everything_passes_and_nothing_is_shown():
    free = quotas()
    assert passed(free, 100) == 100
    assert free.view("t", ADDRESS, 0) == ()


@pytest.mark.parametrize(
    ("unit", "left"),
    [(QuotaUnit.REQUESTS, 99), (QuotaUnit.TOKENS, 70), (QuotaUnit.PROMPT_TOKENS, 90)],
    ids=str,
)
def test_each_unit_is_charged_with_what_it_counts(unit, left):
    some = quotas(limit("q", 100, unit))
    reserve(some, prompt=10, output=20)
    assert remaining(some) == {"q": left}


@pytest.mark.parametrize(
    ("per", "same", "other_tenant", "other_address"),
    [
        (QuotaScope.REPLICA, 0, 0, 0),
        (QuotaScope.BACKEND, 0, 0, 0),
        (QuotaScope.TENANT, 0, 1, 0),
        (QuotaScope.ADDRESS, 0, 0, 1),
    ],
    ids=str,
)
def test_a_quota_is_shared_by_its_scope(per, same, other_tenant, other_address):
    one = quotas(limit("q", 1, per=per))
    assert passed(one, 1) == 1
    assert passed(one, 1) == same
    assert passed(one, 1, tenant="other") == other_tenant
    assert passed(one, 1, address="192.0.2.2") == other_address


def test_all_are_charged_or_none():
    both = quotas(limit("wide", 100), limit("narrow", 15, QuotaUnit.PROMPT_TOKENS, QuotaScope.TENANT))
    assert isinstance(reserve(both), Reservation)
    assert isinstance(reserve(both), QuotaRefusal)
    assert remaining(both) == {"wide": 99, "narrow": 5}


def test_a_refusal_names_the_quota_that_takes_longest_and_waiting_so_long_is_enough():
    both = quotas(limit("fast", 60, window_seconds=60), limit("slow", 6, QuotaUnit.PROMPT_TOKENS, window_seconds=60))
    for _ in range(6):
        reserve(both, prompt=1)
    for _ in range(54):
        reserve(both, prompt=0)
    refusal = reserve(both, prompt=2)
    assert isinstance(refusal, QuotaRefusal)
    assert (refusal.name, refusal.unit) == ("slow", QuotaUnit.PROMPT_TOKENS)
    assert refusal.wait_seconds == pytest.approx(20, abs=1e-4)
    assert refusal.shed is Shed.QUOTA
    assert {view.name: view.remaining for view in refusal.view} == {"fast": 0, "slow": 0}
    assert isinstance(reserve(both, refusal.wait_seconds, prompt=2), Reservation)


def test_what_is_larger_than_a_quota_never_fits():
    small = quotas(limit("small", 5, QuotaUnit.PROMPT_TOKENS), limit("none-left", 1))
    reserve(small, prompt=1)
    refusal = reserve(small, prompt=6)
    assert isinstance(refusal, QuotaRefusal)
    assert (refusal.name, refusal.wait_seconds, refusal.shed) == ("small", inf, Shed.NEVER_FITS)


@pytest.mark.parametrize(("prompt", "output", "left"), [(5, 5, 90), (10, 20, 70), (50, 100, -50)])
def test_settling_corrects_the_estimate(prompt, output, left):
    some = quotas(limit("q", 100, QuotaUnit.TOKENS, window_seconds=100))
    reserve(some).settle(prompt, output, now=0)
    assert remaining(some) == {"q": max(0, left)}
    assert remaining(some, 60) == {"q": min(100, left + 60)}


def test_a_cancelled_request_costs_nothing():
    some = quotas(limit("requests", 10), limit("tokens", 100, QuotaUnit.TOKENS, QuotaScope.TENANT))
    reserve(some).cancel(0)
    assert remaining(some) == {"requests": 10, "tokens": 100}


@pytest.mark.parametrize("first", [lambda one: one.settle(1, 1, now=0), lambda one: one.cancel(0)])
@pytest.mark.parametrize("second", [lambda one: one.settle(1, 1, now=0), lambda one: one.cancel(0)])
def test_a_reservation_is_closed_exactly_once(first, second):
    some = quotas(limit("q", 10))
    reservation = reserve(some)
    first(reservation)
    with pytest.raises(ReservationError):
        second(reservation)


def test_an_even_pace_delays_and_the_longest_delay_counts():
    paced = quotas(
        limit("slow", 6, algorithm=QuotaAlgorithm.LEAKY_BUCKET),
        limit("fast", 60, algorithm=QuotaAlgorithm.LEAKY_BUCKET),
    )
    delays = [reserve(paced).delay_seconds for _ in range(3)]
    assert delays == pytest.approx([0, 10, 20])


def test_connections_are_counted_apart_from_requests():
    both = quotas(
        limit("connections", 2, QuotaUnit.CONNECTIONS, QuotaScope.ADDRESS),
        limit("all-connections", 3, QuotaUnit.CONNECTIONS, QuotaScope.REPLICA),
        limit("requests", 5),
    )
    assert [both.connect(ADDRESS, 0).delay_seconds for _ in range(2)] == [0, 0]
    refusal = both.connect(ADDRESS, 0)
    assert isinstance(refusal, QuotaRefusal)
    assert (refusal.name, refusal.shed) == ("connections", Shed.QUOTA)
    assert both.connect("192.0.2.2", 0).delay_seconds == 0
    other = both.connect("192.0.2.3", 0)
    assert isinstance(other, QuotaRefusal)
    assert other.name == "all-connections"
    assert remaining(both) == {"requests": 5}
    assert passed(both, 6) == 5


def test_a_paced_connection_is_served_later():
    paced = quotas(limit("c", 60, QuotaUnit.CONNECTIONS, algorithm=QuotaAlgorithm.LEAKY_BUCKET))
    assert [paced.connect(ADDRESS, 0).delay_seconds for _ in range(3)] == pytest.approx([0, 1, 2])


def test_open_connections_are_counted_until_they_end_whatever_the_window():
    some = quotas(limit("open", 2, QuotaUnit.OPEN_CONNECTIONS, QuotaScope.ADDRESS, window_seconds=1))
    first, _ = (some.connect(ADDRESS, 0) for _ in range(2))
    refusal = some.connect(ADDRESS, 3600)
    assert isinstance(refusal, QuotaRefusal)
    assert (refusal.name, refusal.shed, refusal.wait_seconds) == ("open", Shed.QUOTA, 1)
    first.close(3600)
    assert not isinstance(some.connect(ADDRESS, 3600), QuotaRefusal)
    with pytest.raises(ReservationError):
        first.close(3600)


def test_a_connection_of_a_proxy_is_nobodys_address():
    some = quotas(limit("one", 1, QuotaUnit.CONNECTIONS, QuotaScope.ADDRESS), limit("all", 9, QuotaUnit.CONNECTIONS))
    assert sum(not isinstance(some.connect(None, 0), QuotaRefusal) for _ in range(20)) == 9


TENANTS = TenantsPolicy(
    default=TenantLimits(rate_limits=(TenantQuota(name="daily", limit=2),)),
    classes=(
        TenantClass(name="gold", tenants=("rich",), rate_limits=(TenantQuota(name="daily", limit=7),)),
        TenantClass(name="plain", tenants=("team-*",)),
    ),
)


@pytest.mark.parametrize(("tenant", "may"), [("rich", 7), ("team-a", 4), ("stranger", 2)])
def test_a_tenant_has_its_own_quotas_and_those_it_does_not_replace(tenant, may):
    some = quotas(limit("daily", 4, per=QuotaScope.TENANT), tenants=TENANTS)
    assert passed(some, 10, tenant=tenant) == may


def test_callers_that_are_no_tenant_have_the_default_whatever_patterns_there_are():
    everybody = TenantClass(name="all", tenants=("*",), rate_limits=(TenantQuota(name="daily", limit=7),))
    tenants = TENANTS.model_copy(update={"classes": (everybody,)})
    some = quotas(tenants=tenants)
    assert (passed(some, 10, tenant=UNKNOWN_TENANT), passed(some, 10, tenant="anybody")) == (2, 7)


def test_a_replica_has_its_share_of_all_but_its_own_quotas():
    scopes = {scope.value.lower(): scope for scope in QuotaScope}
    some = quotas(*(limit(name, 100, per=scope) for name, scope in scopes.items()), share=0.25)
    assert remaining(some) == {"replica": 100, "backend": 25, "tenant": 25, "address": 25}


def test_another_share_holds_at_once_and_gives_nothing_back():
    some = quotas(limit("b", 100), limit("t", 100, per=QuotaScope.TENANT))
    assert passed(some, 40) == 40
    some.set_share(0.5, now=0)
    assert some.share == 0.5
    assert remaining(some) == {"b": 50, "t": 50}
    some.set_share(1.0, now=0)
    assert remaining(some) == {"b": 50, "t": 50}


@pytest.mark.parametrize("share", [-1.0, 1.5, inf])
def test_a_share_out_of_its_bounds_is_an_error_and_changes_nothing(share):
    some = quotas(limit("b", 100))
    with pytest.raises(ValueError, match="between 0 and 1"):
        some.set_share(share, now=0)
    assert some.share == 1.0
    assert passed(some, 101) == 100


@pytest.mark.parametrize("algorithm", list(QuotaAlgorithm), ids=str)
@pytest.mark.parametrize("per", list(QuotaScope), ids=str)
def test_a_reload_keeps_what_is_counted(algorithm, per):
    some = quotas(limit("q", 10, per=per, algorithm=algorithm))
    under_way = [reserve(some) for _ in range(6)]
    some.configure((limit("new", 5), limit("q", 10, per=per, algorithm=algorithm)), None, now=0)
    assert remaining(some) == {"q": 4, "new": 5}
    under_way[0].cancel(0)
    assert remaining(some) == {"q": 5, "new": 5}


@pytest.mark.parametrize("new", list(QuotaAlgorithm), ids=str)
def test_a_request_under_way_is_settled_though_its_quota_has_another_algorithm_now(new):
    some = quotas(limit("q", 100, QuotaUnit.TOKENS, algorithm=QuotaAlgorithm.SLIDING_WINDOW))
    reservation = reserve(some)
    some.configure((limit("q", 100, QuotaUnit.TOKENS, algorithm=new),), None, now=0)
    reservation.settle(30, 30, now=0)
    assert remaining(some) == {"q": 40}


def test_a_quota_that_was_removed_no_longer_counts_and_may_still_be_settled():
    some = quotas(limit("q", 1), limit("t", 1, per=QuotaScope.TENANT))
    reservation = reserve(some)
    some.configure((), None, now=0)
    assert passed(some, 5) == 5
    reservation.settle(1, 1, now=1)


def test_a_quota_of_another_unit_starts_anew():
    some = quotas(limit("q", 10))
    passed(some, 10)
    some.configure((limit("q", 100, QuotaUnit.TOKENS),), None, now=0)
    assert remaining(some) == {"q": 100}


def test_what_was_charged_is_seen_until_it_is_closed():
    some = quotas(
        limit("requests", 5, per=QuotaScope.TENANT),
        limit("tokens", 100, QuotaUnit.TOKENS),
        limit("own", 7, per=QuotaScope.REPLICA),
    )
    reservation = reserve(some, 1.0)
    assert tuple(reservation.view(3.0)) == some.view("t", ADDRESS, 3.0)
    reservation.settle(10, 20, now=4.0)
    with pytest.raises(ReservationError):
        reservation.view(5.0)


def test_the_view_tells_what_the_headers_need():
    some = quotas(limit("q", 60, window_seconds=60, burst=30, per=QuotaScope.TENANT))
    passed(some, 10)
    (view,) = some.view("t", ADDRESS, 0)
    assert (view.name, view.unit) == ("q", QuotaUnit.REQUESTS)
    assert (view.limit, view.remaining, view.window_seconds) == (30, 20, 60)
    assert view.reset_seconds == pytest.approx(10, abs=1e-4)


def test_the_view_never_shows_more_left_than_there_can_be():
    some = quotas(limit("q", 60, burst=500))
    (view,) = some.view("t", ADDRESS, 0)
    assert (view.limit, view.remaining) == (60, 60)
    assert passed(some, 501) == 500


@pytest.mark.parametrize(
    "end", [lambda one: one.cancel(65), lambda one: one.settle(0, 0, now=65)], ids=["cancel", "settle"]
)
def test_what_an_earlier_window_has_counted_is_not_given_back_in_a_later_one(end):
    some = quotas(limit("q", 100, QuotaUnit.TOKENS, algorithm=QuotaAlgorithm.FIXED_WINDOW, window_seconds=60))
    early = reserve(some, 55)
    reserve(some, 61)
    end(early)
    assert remaining(some, 65) == {"q": 70}


@pytest.mark.parametrize(
    "end", [lambda one: one.cancel(1), lambda one: one.settle(0, 0, now=1)], ids=["cancel", "settle"]
)
def test_a_holder_whose_requests_have_ended_and_cost_nothing_makes_room_for_another(end):
    some = quotas(limit("q", 100, QuotaUnit.TOKENS, QuotaScope.ADDRESS), maximum_accounts=1)
    end(reserve(some, 0))
    reserve(some, 1, address="192.0.2.2")
    assert some.overruns == 0


def test_strangers_leave_no_memory_while_they_are_refused():
    some = quotas(limit("b", 1), limit("a", 1, per=QuotaScope.ADDRESS), limit("t", 1, per=QuotaScope.TENANT))
    passed(some, 1)
    for number in range(50):
        assert passed(some, 1, tenant=f"t{number}", address=f"10.0.0.{number}") == 0
    assert len(some._tenants) == 1
    assert len(some._addresses) == 1


def test_more_holders_than_may_be_remembered_are_counted():
    some = quotas(limit("a", 5, per=QuotaScope.ADDRESS), maximum_accounts=10)
    for number in range(15):
        reserve(some, address=f"10.0.0.{number}")
    assert len(some._addresses) == 10
    assert some.overruns == 5


rules = st.lists(
    st.builds(
        limit,
        st.just("q"),
        st.integers(1, 300),
        st.sampled_from((QuotaUnit.REQUESTS, QuotaUnit.TOKENS, QuotaUnit.PROMPT_TOKENS)),
        st.sampled_from(QuotaScope),
        algorithm=st.sampled_from(QuotaAlgorithm),
        window_seconds=st.sampled_from((1, 10, 60)),
    ),
    min_size=1,
    max_size=4,
).map(lambda limits: [one.model_copy(update={"name": f"q{number}"}) for number, one in enumerate(limits)])
asks = st.lists(
    st.tuples(
        st.sampled_from((0.0, 0.01, 1.0, 30.0)),
        st.sampled_from("ab"),
        st.integers(0, 100),
        st.integers(0, 100),
        st.sampled_from(("settle", "cancel", "go on")),
    ),
    max_size=30,
)


@settings(derandomize=True)
@given(rules=rules, share=st.sampled_from((1.0, 0.5)), asks=asks)
def test_who_is_refused_pays_nothing_and_who_waits_as_told_passes(rules, share, asks):
    some, now = quotas(*rules, share=share), 0.0
    for pause, tenant, prompt, output, ending in asks:
        now += pause
        before = some.view(tenant, ADDRESS, now)
        answer = reserve(some, now, tenant=tenant, prompt=prompt, output=output)
        if isinstance(answer, QuotaRefusal):
            assert some.view(tenant, ADDRESS, now) == before == answer.view
            if answer.wait_seconds < inf:
                now += answer.wait_seconds
                answer = reserve(some, now, tenant=tenant, prompt=prompt, output=output)
                assert isinstance(answer, Reservation)
        if isinstance(answer, Reservation) and ending == "cancel":
            answer.cancel(now)
        elif isinstance(answer, Reservation) and ending == "settle":
            answer.settle(output, prompt, now=now)


@settings(derandomize=True)
@given(
    rules=rules,
    calls=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 3), st.booleans()), min_size=1, max_size=25),
)
def test_a_client_that_keeps_to_every_quota_in_view_is_never_refused(rules, calls):
    some, now = quotas(*rules), 0.0
    view = some.view("t", ADDRESS, now)
    for part, pause, waits in calls:
        if waits:
            now += max(one.reset_seconds for one in view)
            may = {one.unit: min(other.limit for other in view if other.unit is one.unit) for one in view}
        else:
            may = {one.unit: min(other.remaining for other in view if other.unit is one.unit) for one in view}
        now += pause
        tokens = may.get(QuotaUnit.TOKENS, 1000)
        prompt = int(part * min(may.get(QuotaUnit.PROMPT_TOKENS, 1000), tokens))
        if 0 in may.values():
            continue
        answer = reserve(some, now, prompt=prompt, output=int(part * (tokens - prompt)))
        assert isinstance(answer, Reservation)
        view = some.view("t", ADDRESS, now)
