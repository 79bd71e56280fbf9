"""Refusals for load and quotas: the right reason and status, and a time to come back that every SDK takes seriously."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admission.quotaview import QuotaRefusal
from penstock.admission.shed import Shed
from penstock.api.admission import OverloadStatus
from penstock.api.ratelimits import QuotaUnit
from penstock.limiter.refusal import LONGEST_RETRY_AFTER_SECONDS, Reason, Refused, refusal_headers
from penstock.limiter.shedding import pace_refusal, quota_refusal, refusal

BUSY, SLOW_DOWN = OverloadStatus.SERVICE_UNAVAILABLE, OverloadStatus.TOO_MANY_REQUESTS


def of_quota(wait_seconds: float, unit: QuotaUnit = QuotaUnit.REQUESTS) -> Refused:
    found = QuotaRefusal(name="few", unit=unit, wait_seconds=wait_seconds, view=())
    return quota_refusal(found, fields=[(b"a", b"b")])


ELSEWHERE = {Shed.QUOTA, Shed.NEVER_FITS, Shed.UNKNOWN_CALLER, Shed.BAD_REQUEST}
"""What is refused with an answer of its own, where it is found."""


@pytest.mark.parametrize(
    ("shed", "reason", "status", "slow_down"),
    [
        (Shed.QUEUE_FULL, Reason.OVERLOADED, 503, 429),
        (Shed.WAIT_TOO_LONG, Reason.OVERLOADED, 503, 429),
        (Shed.QUEUE_TIMEOUT, Reason.QUEUE_TIMEOUT, 503, 429),
        (Shed.LOW_PRIORITY, Reason.SHED_LOW_PRIORITY, 429, 429),
        (Shed.RETRY_BUDGET, Reason.RETRY_BUDGET_EXHAUSTED, 503, 503),
    ],
)
def test_each_reason_has_its_answer(shed: Shed, reason: Reason, status: int, slow_down: int) -> None:
    answers = [refusal(shed, overload=overload, retry_after_seconds=None) for overload in (BUSY, SLOW_DOWN)]
    assert [(one.reason, one.status) for one in answers] == [(reason, status), (reason, slow_down)]
    assert all(one.message.endswith(".") and one.retry_after_seconds == 1 for one in answers)
    assert all((one.kind == "server_error") == (one.status == 503) for one in answers)


def test_every_reason_for_shedding_has_an_answer() -> None:
    for shed in set(Shed) - ELSEWHERE:
        assert refusal(shed, overload=BUSY, retry_after_seconds=None).reason


def test_only_repetitions_are_told_not_to_come_back_by_themselves() -> None:
    told = {
        shed
        for shed in set(Shed) - ELSEWHERE
        if (b"x-should-retry", b"false")
        in refusal_headers(refusal(shed, overload=BUSY, retry_after_seconds=None), jitter=0)
    }
    assert told == {Shed.RETRY_BUDGET}


@given(seconds=st.floats(0, 1e9), jitter=st.floats(0, 1), kind=st.sampled_from(["gate", "quota", "pace"]))
def test_the_time_to_come_back_is_never_none_and_never_above_a_minute(seconds: float, jitter: float, kind: str) -> None:
    refused = {
        "gate": lambda: refusal(Shed.QUEUE_FULL, overload=BUSY, retry_after_seconds=seconds),
        "quota": lambda: of_quota(seconds),
        "pace": lambda: pace_refusal(seconds, patience_seconds=0.0, fields=()),
    }[kind]()
    headers = dict(refusal_headers(refused, jitter=jitter))
    after, milliseconds = int(headers[b"Retry-After"]), int(headers[b"retry-after-ms"])
    assert 1 <= after <= LONGEST_RETRY_AFTER_SECONDS
    # Who comes back after a minute to a quota that needs longer is refused again.
    in_vain = kind != "gate" and (refused.retry_after_seconds or 0) > LONGEST_RETRY_AFTER_SECONDS
    assert (headers.get(b"x-should-retry") == b"false") == in_vain
    assert min(seconds, LONGEST_RETRY_AFTER_SECONDS) <= after
    assert min(seconds, LONGEST_RETRY_AFTER_SECONDS) * 1000 <= milliseconds <= LONGEST_RETRY_AFTER_SECONDS * 1000


@pytest.mark.parametrize(
    ("unit", "kind"),
    [(QuotaUnit.REQUESTS, "requests"), (QuotaUnit.TOKENS, "tokens"), (QuotaUnit.PROMPT_TOKENS, "tokens")],
)
def test_a_quota_is_429_and_names_itself(unit: QuotaUnit, kind: str) -> None:
    refused = of_quota(12.3, unit)
    assert (refused.reason, refused.status, refused.kind) == (Reason.RATE_LIMIT_EXCEEDED, 429, kind)
    assert "few" in refused.message
    assert "12.3 s" in refused.message
    assert refused.fields == [(b"a", b"b")]


def test_what_never_fits_is_told_so_and_not_to_come_back() -> None:
    refused = of_quota(inf)
    assert (refused.reason, refused.status, refused.retry_after_seconds) == (Reason.NEVER_FITS, 400, None)
    assert not {b"Retry-After", b"retry-after-ms"} & dict(refusal_headers(refused, jitter=0)).keys()


def test_a_pace_is_429_until_it_is_within_patience() -> None:
    refused = pace_refusal(20.0, patience_seconds=5.0, fields=())
    assert (refused.status, refused.retry_after_seconds) == (429, 15.0)
