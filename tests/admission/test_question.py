"""What a shared store answers is an answer, or is refused as none: never an error of the limiter, never long work."""

import pytest

from penstock.admission.account import Use
from penstock.admission.question import LETTERS, AnswerError, Holding, Keys, Question
from penstock.api.ratelimits import QuotaAlgorithm, RateLimit

COUNTS = {
    QuotaAlgorithm.TOKEN_BUCKET: 2,
    QuotaAlgorithm.LEAKY_BUCKET: 2,
    QuotaAlgorithm.FIXED_WINDOW: 3,
    QuotaAlgorithm.SLIDING_WINDOW: 35,
}
HUGE = 10**300
ALGORITHMS = pytest.mark.parametrize("algorithm", QuotaAlgorithm)


def question(algorithm: QuotaAlgorithm) -> Question:
    quota = RateLimit(name="q", algorithm=algorithm, limit=10, window_seconds=60)
    return Question([Holding(quota, "")], Use(1, 5, 5), keys=Keys("uid"))


def line(algorithm: QuotaAlgorithm, *, at: int = 0, counts: list[int] | None = None) -> bytes:
    numbers = [at, 10, 60_000_000, 10, *([0] * COUNTS[algorithm] if counts is None else counts)]
    return LETTERS[algorithm] + b"".join(b" %d" % number for number in numbers)


@ALGORITHMS
def test_what_a_store_says_of_a_fresh_quota_is_understood(algorithm):
    counts = [10, *[0] * (COUNTS[algorithm] - 1)] if algorithm is QuotaAlgorithm.TOKEN_BUCKET else None
    assert question(algorithm).answer([1, 1000, line(algorithm, counts=counts)]).delay_seconds == 0


@ALGORITHMS
@pytest.mark.parametrize("passes", [0, 1], ids=["refused", "passed"])
@pytest.mark.parametrize("number", [HUGE, -HUGE, 2**63], ids=["huge", "hugely negative", "64 bits"])
def test_numbers_beyond_all_counts_are_no_answer(algorithm, passes, number):
    for reply in (
        [passes, number, line(algorithm)],
        [passes, 1000, line(algorithm, at=number)],
        [passes, 1000, line(algorithm, counts=[number] * COUNTS[algorithm])],
    ):
        with pytest.raises(AnswerError):
            question(algorithm).answer(reply)


@ALGORITHMS
@pytest.mark.parametrize(
    "reply",
    [None, b"OK", 1, {}, [], [1, 1000], [1, None, b"T"], [1, float("inf"), b"T 1"], [[], {}, b""], [1, 1, None]],
    ids=repr,
)
def test_another_form_is_no_answer(algorithm, reply):
    with pytest.raises(AnswerError):
        question(algorithm).answer(reply)


@pytest.mark.parametrize(
    "counts",
    [[0, -1, *[0] * 33], [0, 2**60, -1, *[0] * 32], [0, 5], [0, 5, *[0] * 34]],
    ids=["negative debt", "negative slice", "too few", "too many"],
)
def test_a_sliding_window_that_would_never_pay_its_debt_is_no_answer(counts):
    with pytest.raises(AnswerError):
        question(QuotaAlgorithm.SLIDING_WINDOW).answer([0, 1000, line(QuotaAlgorithm.SLIDING_WINDOW, counts=counts)])
