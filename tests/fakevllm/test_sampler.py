"""The choice of tokens: a function of prompt and seed that requests can bend."""

import pytest

from e2e.fakevllm.sampler import Choice, Sampler, stir

SAMPLER = Sampler(range(100, 200), 1000)


def draw(prompt: list[int], choice: Choice, count: int = 20) -> list[int]:
    state = SAMPLER.begin(prompt, choice)
    tokens = []
    for _ in range(count):
        tokens.append(SAMPLER.draw(state, choice))
        state = stir(state, tokens[-1])
    return tokens


def test_the_same_prompt_and_seed_give_the_same_tokens():
    assert draw([1, 2, 3], Choice(seed=5)) == draw([1, 2, 3], Choice(seed=5))


@pytest.mark.parametrize("other", [[1, 2, 4], [2, 1, 3], [1, 2], [1, 2, 3, 0]])
def test_another_prompt_gives_other_tokens(other):
    assert draw([1, 2, 3], Choice()) != draw(other, Choice())


def test_another_seed_gives_other_tokens():
    assert len({tuple(draw([1, 2, 3], Choice(seed=seed))) for seed in range(50)}) == 50


def test_tokens_come_from_the_printable_ones_and_use_most_of_them():
    seen = set(draw([7], Choice(), count=2000))
    assert seen <= set(range(100, 200))
    assert len(seen) > 90


@pytest.mark.parametrize(
    ("choice", "possible"),
    [
        (Choice(bias={3: 100.0}), {3}),
        (Choice(bias={3: 100.0}, allowed=(150, 151)), {150, 151}),
        (Choice(allowed=(4,)), {4}),
        (Choice(bias={4: -100.0}, allowed=(4, 5)), {5}),
        (Choice(bias={4: 1.0}, allowed=(4, 5)), {4, 5}),
    ],
    ids=["forced", "forced but not allowed", "only one allowed", "forbidden", "weak bias"],
)
def test_requests_bend_the_choice(choice, possible):
    assert set(draw([1], choice, count=100)) == possible


def test_a_forbidden_token_is_not_drawn_even_if_forced():
    choice = Choice(bias={3: 100.0})
    assert SAMPLER.draw(SAMPLER.begin([1], choice), choice, forbidden=frozenset({3})) != 3


@pytest.mark.parametrize("count", [0, 1, 2, 5, 20])
@pytest.mark.parametrize("state", range(6))
def test_ranks_list_the_token_first_and_the_likeliest_once_each(count, state):
    ranked = SAMPLER.rank(state, 42, count)
    assert ranked[0].token == 42
    assert len({entry.token for entry in ranked}) == len(ranked)
    assert len(ranked) in (max(count, 1), count + 1)
    assert [entry.rank for entry in ranked[1:]] == sorted(entry.rank for entry in ranked[1:])
    assert all(entry.logprob < 0 for entry in ranked)
