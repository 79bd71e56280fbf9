"""Which token comes next: a function of everything before it and the seed, cheap enough for thousands of streams.

Tokens are drawn from those that spell printable text, so answers are valid UTF-8 and never end by themselves before
`max_tokens` (a random model ends after a thousand tokens on average; tests want the length they asked for). What a
request says about single tokens is honoured: `logit_bias` of 50 and more forces a token, -50 and less forbids it,
`allowed_token_ids` restricts the choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

FORCING_BIAS = 50.0
_MASK = (1 << 64) - 1
_MULTIPLIER = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Choice:
    """What a request says about the choice of tokens."""

    seed: int = 0
    bias: dict[int, float] = field(default_factory=dict)
    allowed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranked:
    """A token with its made-up log probability and rank (1 is the likeliest)."""

    token: int
    logprob: float
    rank: int


def stir(state: int, number: int) -> int:
    """Return a 64-bit state that depends on every number stirred in so far, in order."""
    mixed = (state ^ (number + 0x1234567)) * _MULTIPLIER & _MASK
    return (mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9 & _MASK


class Sampler:
    """Draws tokens from a vocabulary.

    Args:
        printable: Token ids to draw from, in order.
        vocabulary: Number of token ids in all.
    """

    def __init__(self, printable: Sequence[int], vocabulary: int) -> None:
        self._printable = tuple(printable)
        self._vocabulary = vocabulary

    def begin(self, tokens: Sequence[int], choice: Choice) -> int:
        """Return the state after a prompt."""
        state = stir(0, choice.seed)
        for token in tokens:
            state = stir(state, token)
        return state

    def draw(self, state: int, choice: Choice, *, forbidden: frozenset[int] = frozenset()) -> int:
        """Return the next token, none of the forbidden ones."""
        if choice.bias:
            token, bias = max(choice.bias.items(), key=lambda item: item[1])
            if bias >= FORCING_BIAS and (not choice.allowed or token in choice.allowed) and token not in forbidden:
                return token
        candidates = choice.allowed or self._printable
        if choice.bias or forbidden:
            kept = tuple(
                token for token in candidates if choice.bias.get(token, 0.0) > -FORCING_BIAS and token not in forbidden
            )
            candidates = kept or candidates
        return candidates[(state >> 11) % len(candidates)]

    def rank(self, state: int, token: int, count: int) -> list[Ranked]:
        """Return the token first, then the `count` likeliest ones, as an engine reports them.

        The chosen token is the likeliest or an unlikely one, as the state has it; the others follow by rank.
        """
        chosen_rank = 1 if state & 1 else count + 2 + (state >> 8) % 100
        ranked = [Ranked(token, -(1.0 + chosen_rank / 16), chosen_rank)]
        seen = {token}
        number = (state >> 17) % self._vocabulary
        for rank in range(1, count + 1):
            if rank == chosen_rank:
                continue
            while number in seen:
                number = (number + 1) % self._vocabulary
            seen.add(number)
            ranked.append(Ranked(number, -(1.0 + rank / 16), rank))
            number = (number + 389) % self._vocabulary
        return ranked
