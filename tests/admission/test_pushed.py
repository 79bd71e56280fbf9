"""Which push is taken, and what of it stays as time passes: tables, and all histories."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.admission.pushed import DRIFT_STEPS, Acceptance, Standing
from penstock.api.push import Decision, Pushed, PushedLimits, PushResult, Version

PEERS = ("10.0.0.2",)


def push(*version, backend="b", pod="p", boot="x", rate=2.0, ttl=60.0, share=0.5):
    limits = PushedLimits(rate_per_second=rate, share=share, peers=PEERS, decision=Decision(rule="r"))
    return Pushed(
        backend_uid=backend,
        pod_uid=pod,
        boot_id=boot,
        version=Version(*(version or (1, 1))),
        ttl_seconds=ttl,
        limits=limits,
    )


@pytest.fixture
def acceptance():
    return Acceptance(backend_uid="b", pod_uid="p", boot_id="x")


@pytest.mark.parametrize(
    ("pushed", "result"),
    [
        (push(), PushResult.APPLIED),
        (push(backend="c", pod="q", boot="y"), PushResult.WRONG_BACKEND),
        (push(pod="q", boot="y"), PushResult.WRONG_POD),
        (push(boot="y"), PushResult.WRONG_BOOT),
        (push(boot=""), PushResult.WRONG_BOOT),
    ],
)
def test_it_is_for_this_process_only(acceptance, pushed, result):
    assert acceptance.take(pushed, now=0) is result
    assert (acceptance.version is None) == (result is not PushResult.APPLIED)


def test_without_a_pod_uid_the_boot_id_binds():
    acceptance = Acceptance(backend_uid="b", pod_uid=None, boot_id="x")
    assert acceptance.take(push(pod="any", boot="y"), now=0) is PushResult.WRONG_BOOT
    assert acceptance.take(push(pod="any"), now=0) is PushResult.APPLIED


@pytest.mark.parametrize(
    ("version", "result"),
    [
        ((2, 5), PushResult.OLD_VERSION),
        ((2, 4), PushResult.OLD_VERSION),
        ((1, 99), PushResult.OLD_VERSION),
        ((2, 6), PushResult.APPLIED),
        ((3, 0), PushResult.APPLIED),
    ],
)
def test_only_what_is_later_is_taken(acceptance, version, result):
    acceptance.take(push(2, 5), now=0)
    assert acceptance.take(push(*version), now=1) is result
    assert acceptance.version == max(Version(2, 5), Version(*version))


def test_nothing_binds_before_the_first(acceptance):
    assert acceptance.standing(0) is Standing.NONE
    assert (acceptance.rate_per_second(0), acceptance.share, acceptance.peers(0)) == (None, None, ())


@pytest.mark.parametrize(
    ("now", "standing", "rate", "peers"),
    [
        (0, Standing.FRESH, 2.0, PEERS),
        (59.9, Standing.FRESH, 2.0, PEERS),
        (60, Standing.HELD, 2.0, ()),
        (74.9, Standing.HELD, 2.0, ()),
        (75, Standing.HELD, 2.0 * 1.05, ()),
        (90, Standing.HELD, 2.0 * 1.05**2, ()),
        (60 + 15 * (DRIFT_STEPS - 1), Standing.HELD, 2.0 * 1.05 ** (DRIFT_STEPS - 1), ()),
        (60 + 15 * DRIFT_STEPS, Standing.HELD, None, ()),
        (1e18, Standing.HELD, None, ()),
    ],
)
def test_when_the_ttl_is_over_limits_are_held_and_the_rate_drifts_off(acceptance, now, standing, rate, peers):
    acceptance.take(push(), now=0)
    assert acceptance.standing(now) is standing
    assert acceptance.rate_per_second(now) == (rate if rate is None else pytest.approx(rate))
    assert (acceptance.share, acceptance.peers(now)) == (0.5, peers)


def test_the_rate_is_let_go_at_about_ten_times_what_was_pushed():
    assert 1.05**DRIFT_STEPS > 10 > 1.05 ** (DRIFT_STEPS - 1)


def test_a_push_ends_the_drift(acceptance):
    acceptance.take(push(1, 1), now=0)
    acceptance.take(push(1, 2), now=200)
    assert (acceptance.standing(200), acceptance.rate_per_second(200)) == (Standing.FRESH, 2.0)


def test_no_bound_stays_none(acceptance):
    acceptance.take(push(rate=None), now=0)
    assert acceptance.rate_per_second(0) is acceptance.rate_per_second(1000) is None


class Histories(RuleBasedStateMachine):
    """A replica that is pushed to by anybody, and restarts."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.boots = 0
        self.boot()

    def boot(self):
        self.acceptance = Acceptance(backend_uid="b", pod_uid="p", boot_id=f"x{self.boots}")
        self.highest, self.last, self.taken_at, self.rate = None, None, 0.0, None

    @rule(
        epoch=st.integers(0, 3),
        counter=st.integers(0, 5),
        backend=st.sampled_from(["b", "b", "b", "c"]),
        pod=st.sampled_from(["p", "p", "p", "q"]),
        boots_ago=st.sampled_from([0, 0, 0, 1]),
        rate=st.one_of(st.none(), st.floats(0.01, 100)),
        ttl=st.floats(1, 100),
    )
    def pushed(self, epoch, counter, backend, pod, boots_ago, rate, ttl):
        version = Version(epoch, counter)
        boot = f"x{self.boots - boots_ago}"
        result = self.acceptance.take(
            push(*version, backend=backend, pod=pod, boot=boot, rate=rate, ttl=ttl), now=self.now
        )
        fits = (backend, pod, boots_ago) == ("b", "p", 0) and (self.highest is None or version > self.highest)
        assert (result is PushResult.APPLIED) == fits
        if fits:
            self.highest, self.last, self.taken_at, self.rate = version, (rate, ttl), self.now, rate

    @rule(seconds=st.floats(0, 50))
    def time_passes(self, seconds):
        before = self.acceptance.rate_per_second(self.now)
        self.now += seconds
        after = self.acceptance.rate_per_second(self.now)
        assert after is None or (before is not None and after >= before)  # it never tightens by itself

    @precondition(lambda self: self.boots < 3)
    @rule()
    def restarts(self):
        self.boots += 1
        self.boot()

    @invariant()
    def the_version_never_goes_back(self):
        assert self.acceptance.version == self.highest

    @invariant()
    def what_counts_follows_from_the_last_push_and_the_time(self):
        acceptance = self.acceptance
        if self.last is None:
            assert acceptance.standing(self.now) is Standing.NONE
            return
        rate, ttl = self.last
        fresh = self.now - self.taken_at < ttl
        assert (acceptance.standing(self.now) is Standing.FRESH) == fresh
        assert bool(acceptance.peers(self.now)) == fresh
        assert acceptance.share == 0.5
        if fresh:
            assert acceptance.rate_per_second(self.now) == rate


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
