"""Costs: guessed from sizes, corrected by what engines report."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admission.cost import (
    FIRST_OUTPUT_TOKENS,
    LEAST_BYTES_PER_TOKEN,
    MODEL_LIMIT,
    MOST_BYTES_PER_TOKEN,
    TOKENS_PER_IMAGE,
    TOKENS_PER_MESSAGE,
    CostModel,
    PromptSize,
)

LATIN = PromptSize(text_bytes=36_000)
WIDE = PromptSize(text_bytes=30_000, wide_characters=10_000)


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        pytest.param(PromptSize(), 0, id="nothing"),
        pytest.param(PromptSize(text_bytes=1), 1, id="less than a token is one"),
        pytest.param(LATIN, 10_000, id="3.6 bytes a token"),
        pytest.param(WIDE, 12_000, id="2.5 bytes a token where most characters are wide"),
        pytest.param(PromptSize(text_bytes=36_000, wide_characters=100), 10_000, id="a few wide characters"),
        pytest.param(PromptSize(token_ids=77), 77, id="token ids are counted"),
        pytest.param(PromptSize(images=2), 2 * TOKENS_PER_IMAGE, id="pictures have a fixed cost"),
        pytest.param(PromptSize(text_bytes=36, messages=3), 10 + 3 * TOKENS_PER_MESSAGE, id="the template adds some"),
    ],
)
def test_a_prompt_is_guessed_from_its_size(prompt: PromptSize, tokens: int) -> None:
    assert CostModel().estimate("m", prompt).prompt_tokens == tokens


@pytest.mark.parametrize(
    ("context", "bound", "sequences", "reserved"),
    [
        pytest.param(None, None, 1, FIRST_OUTPUT_TOKENS, id="no bound"),
        pytest.param(None, 10, 1, 10, id="the request's own bound"),
        pytest.param(None, 10_000, 1, FIRST_OUTPUT_TOKENS, id="a bound nobody reaches"),
        pytest.param(10_100, None, 1, 100, id="what the context leaves"),
        pytest.param(5_000, None, 1, 1, id="a prompt beyond the context still reserves something"),
        pytest.param(None, 10, 3, 30, id="several answers"),
        pytest.param(10_100, 0, 1, 0, id="nothing is generated"),
    ],
)
def test_output_is_reserved_within_every_bound(
    context: int | None, bound: int | None, sequences: int, reserved: int
) -> None:
    model = CostModel(context_tokens=context)
    assert model.estimate("m", LATIN, sequences=sequences, max_output_tokens=bound).output_tokens == reserved


def test_output_counts_twice_and_no_request_is_free() -> None:
    estimate = CostModel().estimate("m", PromptSize(token_ids=100), max_output_tokens=10)
    assert estimate.cost == 120
    assert CostModel().estimate("m", PromptSize(), max_output_tokens=0).cost == 1


def test_estimates_follow_the_tokenizer_of_each_model_and_kind_of_text() -> None:
    model = CostModel()
    for _ in range(100):
        model.observe(model.estimate("code", LATIN), prompt_tokens=18_000, output_tokens=0)
    assert model.estimate("code", LATIN).prompt_tokens == pytest.approx(18_000, rel=0.01)
    assert model.estimate("code", WIDE).prompt_tokens == 12_000
    assert model.estimate("other", LATIN).prompt_tokens == 10_000
    for _ in range(100):
        model.observe(model.estimate("code", WIDE), prompt_tokens=20_000, output_tokens=0)
    assert model.estimate("code", WIDE).prompt_tokens == pytest.approx(20_000, rel=0.01)
    assert model.estimate("code", LATIN).prompt_tokens == pytest.approx(18_000, rel=0.01)


def test_greetings_do_not_spoil_the_estimate_of_documents() -> None:
    model = CostModel()
    greeting = PromptSize(text_bytes=2, messages=1)
    for _ in range(100):
        model.observe(model.estimate("m", greeting), prompt_tokens=31, output_tokens=5)
    assert model.estimate("m", LATIN).prompt_tokens == pytest.approx(10_000, rel=0.01)


def test_pictures_do_not_spoil_the_estimate_of_texts() -> None:
    model = CostModel()
    shown = PromptSize(text_bytes=5_000, images=1)
    for _ in range(100):
        model.observe(model.estimate("m", shown), prompt_tokens=9_000, output_tokens=5)
    assert model.estimate("m", LATIN).prompt_tokens == 10_000


def test_the_reserve_settles_where_one_answer_in_four_is_longer() -> None:
    model = CostModel()
    lengths = [100, 200, 300, 400, 500, 600, 700, 800]
    seen = []
    for round_ in range(400):
        estimate = model.estimate("m", LATIN)
        model.observe(estimate, prompt_tokens=10_000, output_tokens=lengths[round_ * 5 % 8])
        seen.append(estimate.output_tokens)
    settled = seen[200:]
    assert 550 <= sum(settled) / len(settled) <= 750


def test_one_huge_answer_moves_the_reserve_by_one_step() -> None:
    model = CostModel()
    model.observe(model.estimate("m", LATIN), prompt_tokens=10_000, output_tokens=1_000_000)
    assert model.estimate("m", LATIN).output_tokens < FIRST_OUTPUT_TOKENS * 1.1


def test_several_answers_are_learned_as_single_ones() -> None:
    model = CostModel()
    for _ in range(200):
        model.observe(model.estimate("m", LATIN, sequences=4), prompt_tokens=10_000, output_tokens=400)
    assert model.estimate("m", LATIN).output_tokens == pytest.approx(100, rel=0.1)


def test_made_up_model_names_cost_no_memory() -> None:
    model = CostModel()
    for number in range(10 * MODEL_LIMIT):
        model.observe(model.estimate(f"m{number}", LATIN), prompt_tokens=18_000, output_tokens=9)
    assert len(model._models) == MODEL_LIMIT
    assert model.estimate("never seen", LATIN).prompt_tokens > 15_000  # what all others share has learned


@given(
    st.lists(
        st.tuples(
            st.builds(
                PromptSize,
                text_bytes=st.integers(0, 10**7),
                wide_characters=st.integers(0, 10**6),
                messages=st.integers(0, 9),
            ),
            st.integers(0, 10**7),
            st.integers(0, 10**6),
            st.integers(1, 5),
        ),
        max_size=30,
    )
)
def test_whatever_engines_report_estimates_stay_within_reason(
    ends: list[tuple[PromptSize, int, int, int]],
) -> None:
    model = CostModel()
    for prompt, prompt_tokens, output_tokens, sequences in ends:
        estimate = model.estimate("m", prompt, sequences=sequences)
        least = prompt.fixed_tokens + prompt.text_bytes // MOST_BYTES_PER_TOKEN
        most = prompt.fixed_tokens + prompt.text_bytes // LEAST_BYTES_PER_TOKEN + 1
        assert least <= estimate.prompt_tokens <= most
        assert estimate.output_tokens >= sequences
        assert estimate.cost >= 1
        model.observe(estimate, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
