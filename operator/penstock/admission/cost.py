"""What a request will cost, guessed before it runs and corrected by what requests like it did cost.

Nobody but the engine knows how many tokens a text is, and asking it would cost a round trip for each request. So the
size of the text decides: a token is some 3.6 bytes of UTF-8, fewer where most of the text is Chinese, Japanese or
Korean. Both ratios belong to a model's tokenizer and follow what its answers report: a moving average in which a
short text counts little, since there the chat template outweighs it. Prompts of token ids are counted and not guessed.
Pictures have a fixed cost: the length of their base64 says nothing about the tokens they become.

Output is the larger unknown. A request reserves what it allows itself, at most what three of four answers of its
model stay below: `_OutputLength` follows that quantile by steps, up by three parts when an answer is longer and down
by one part when it is shorter, so that it rests where one answer in four is longer. A single huge answer moves it by
one step only.

Cost in fair queueing is that of the virtual token counter (VTC, "Fairness in Serving Large Language Models", OSDI
2024): 1 for each token of the prompt and 2 for each token of output.
"""

from __future__ import annotations

import msgspec

BYTES_PER_TOKEN = 3.6
WIDE_BYTES_PER_TOKEN = 2.5
"""Where most characters are wide: each is three bytes or more."""

WIDE_SHARE = 0.3
"""A text is wide when this share of its bytes belongs to wide characters."""

LEAST_BYTES_PER_TOKEN = 1.0
MOST_BYTES_PER_TOKEN = 8.0
TOKENS_PER_MESSAGE = 4
TOKENS_PER_IMAGE = 1024
TOKENS_PER_AUDIO = 1500
FIRST_OUTPUT_TOKENS = 256
LONGEST_OUTPUT_TOKENS = 1 << 20

RATIO_WEIGHT = 0.1
FULL_WEIGHT_BYTES = 2000
QUANTILE = 0.75
QUANTILE_STEP = 0.1
MODEL_LIMIT = 64
"""Models that have an average of their own; all others share one, since a client can make up names."""

PROMPT_WEIGHT = 1.0
OUTPUT_WEIGHT = 2.0

_WIDE_CHARACTER_BYTES = 3


class PromptSize(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How large a prompt is, as far as that can be seen without a tokenizer.

    Attributes:
        text_bytes: UTF-8 bytes of all texts.
        wide_characters: Characters from U+3000 on in them: Chinese, Japanese, Korean and emoji.
        token_ids: Tokens that were sent as numbers.
        messages: Messages of a chat; the template adds some tokens to each.
        images: Pictures and videos.
        audios: Sound recordings.
    """

    text_bytes: int = 0
    wide_characters: int = 0
    token_ids: int = 0
    messages: int = 0
    images: int = 0
    audios: int = 0

    @property
    def wide(self) -> bool:
        """Whether the ratio of wide texts applies."""
        return self.wide_characters * _WIDE_CHARACTER_BYTES > WIDE_SHARE * self.text_bytes

    @property
    def fixed_tokens(self) -> int:
        """Tokens that do not depend on the length of any text."""
        return (
            self.token_ids
            + self.messages * TOKENS_PER_MESSAGE
            + self.images * TOKENS_PER_IMAGE
            + self.audios * TOKENS_PER_AUDIO
        )


class Estimate(msgspec.Struct, frozen=True, gc=False):
    """What one request is expected to cost.

    Attributes:
        model: Whose ratios were used.
        prompt: The prompt it was made from.
        sequences: Answers that are generated side by side, `n` for each prompt.
        prompt_tokens: Expected tokens of the prompt.
        output_tokens: Tokens reserved for all answers together.
    """

    model: str
    prompt: PromptSize
    sequences: int
    prompt_tokens: int
    output_tokens: int

    @property
    def cost(self) -> float:
        """What the request counts in fair queueing, at least 1."""
        return max(1.0, PROMPT_WEIGHT * self.prompt_tokens + OUTPUT_WEIGHT * self.output_tokens)


class CostModel:
    """Estimates requests, and learns from their ends.

    Attributes:
        context_tokens: Most tokens of one request, prompt and output; None when unknown.
    """

    def __init__(self, *, context_tokens: int | None = None) -> None:
        self.context_tokens = context_tokens
        self._models: dict[str, _Learned] = {}
        self._others = _Learned()

    def estimate(
        self, model: str, prompt: PromptSize, *, sequences: int = 1, max_output_tokens: int | None = None
    ) -> Estimate:
        """Return what a request is expected to cost.

        Args:
            model: The model it asks for.
            prompt: The size of its prompt.
            sequences: Answers that are generated side by side.
            max_output_tokens: The most tokens of one answer; None when the request sets no bound, 0 when it generates
                nothing.
        """
        learned = self._models.get(model, self._others)
        ratio = learned.wide_ratio if prompt.wide else learned.ratio
        tokens = prompt.fixed_tokens + -int(-prompt.text_bytes // ratio)
        bound = LONGEST_OUTPUT_TOKENS if max_output_tokens is None else max_output_tokens
        if bound and self.context_tokens is not None:
            bound = min(bound, max(1, self.context_tokens - tokens))
        return Estimate(model, prompt, sequences, tokens, sequences * min(bound, round(learned.output.tokens)))

    def observe(self, estimate: Estimate, *, prompt_tokens: int, output_tokens: int) -> None:
        """Learn from what the engine reported for a request that ran to its end.

        Args:
            estimate: What was expected.
            prompt_tokens: What the engine counted, cached tokens included.
            output_tokens: What it generated, all answers together.
        """
        learned = self._models.get(estimate.model)
        if learned is None:
            learned = self._others
            if len(self._models) < MODEL_LIMIT:
                learned = self._models[estimate.model] = self._others.copy()
        prompt = estimate.prompt
        text_tokens = prompt_tokens - prompt.fixed_tokens
        if text_tokens > 0 and prompt.text_bytes > 0 and not (prompt.images or prompt.audios):
            learned.follow(prompt.text_bytes, text_tokens, wide=prompt.wide)
        if output_tokens > 0:
            learned.output.follow(output_tokens / estimate.sequences)


class _Learned:
    """What is known of one model."""

    __slots__ = ("output", "ratio", "wide_ratio")

    def __init__(self) -> None:
        self.ratio = BYTES_PER_TOKEN
        self.wide_ratio = WIDE_BYTES_PER_TOKEN
        self.output = _OutputLength()

    def copy(self) -> _Learned:
        """Return the same knowledge for another model to begin with."""
        other = _Learned()
        other.ratio, other.wide_ratio, other.output.tokens = self.ratio, self.wide_ratio, self.output.tokens
        return other

    def follow(self, text_bytes: int, tokens: int, *, wide: bool) -> None:
        """Move a ratio towards a sample."""
        sample = min(MOST_BYTES_PER_TOKEN, max(LEAST_BYTES_PER_TOKEN, text_bytes / tokens))
        weight = RATIO_WEIGHT * min(1.0, text_bytes / FULL_WEIGHT_BYTES)
        if wide:
            self.wide_ratio += weight * (sample - self.wide_ratio)
        else:
            self.ratio += weight * (sample - self.ratio)


class _OutputLength:
    """What three of four answers stay below."""

    __slots__ = ("tokens",)

    def __init__(self) -> None:
        self.tokens = float(FIRST_OUTPUT_TOKENS)

    def follow(self, tokens: float) -> None:
        """Take one step towards a sample, never past it."""
        if tokens > self.tokens:
            self.tokens = min(tokens, self.tokens * (1 + QUANTILE_STEP * QUANTILE))
        else:
            self.tokens = max(tokens, self.tokens * (1 - QUANTILE_STEP * (1 - QUANTILE)), 1.0)
