"""From a request to token ids and sampling wishes, with vLLM's checks in vLLM's order.

First the model's name, then queue limits, then the prompt (length against the context), then the sampling numbers, and
last, after a stream has already been answered 200, what vLLM only checks inside its engine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from e2e.fakevllm.engine import Wish
from e2e.fakevllm.sampler import Choice
from e2e.fakevllm.tokenizer import Tokenizer
from e2e.fakevllm.wire.bodies import ChatBody, CompletionBody, Message
from e2e.fakevllm.wire.errors import RequestError, unknown_model

MAX_LOGPROBS = 20
MAX_SEQUENCES = 16_384
BEGIN, END = "<|begin|>", "<|end|>"


@dataclass(frozen=True, slots=True)
class Model:
    """What is served, under which names, with how much context."""

    names: tuple[str, ...]
    root: str
    max_tokens: int
    tokenizer: Tokenizer
    max_logprobs: int = MAX_LOGPROBS

    def check_name(self, name: str | None) -> None:
        """Raise the 404 for a name that is not served; no name at all means this model."""
        if name and name not in self.names:
            raise unknown_model(name, self.names)

    def check_length(self, count: int) -> None:
        """Raise the 400 for a prompt longer than the context."""
        if count > self.max_tokens:
            shown = f"at least {count}" if count == self.max_tokens + 1 else str(count)
            raise RequestError(
                f"This model's maximum context length is {self.max_tokens} tokens. However, your prompt contains "
                f"{shown} input tokens, which exceeds this limit even without any output tokens. "
                "Please reduce the length of the input prompt.",
                param="input_tokens",
                value=count,
            )

    def tokens(self, text: str, *, special: bool) -> list[int]:
        """Return the tokens of a text of any length.

        Raises:
            RequestError: It contains half a surrogate pair, which is no text.
        """
        try:
            return self.tokenizer.encode(text, special=special)
        except UnicodeEncodeError:
            raise RequestError(
                "TextEncodeInput must be Union[TextInputSequence, Tuple[InputSequence, InputSequence]]"
            ) from None

    def encode(self, text: str, *, special: bool, keep: int | None = None) -> list[int]:
        """Return the tokens of a prompt, or the first `keep` of them.

        Raises:
            RequestError: It cannot fit.
        """
        longest = self.max_tokens * self.tokenizer.longest_token
        if keep is None and len(text) > longest:
            raise RequestError(
                f"This model's maximum context length is {self.max_tokens} tokens. However, your prompt contains "
                f"{len(text)} characters (more than {longest} characters, which is the upper bound for "
                f"{self.max_tokens} input tokens). Please reduce the length of the input prompt.",
                param="input_text",
                value=len(text),
            )
        tokens = self.tokens(text, special=special)
        if keep is None:
            # vLLM stops tokenizing one token after the limit, so that is the most it can report.
            self.check_length(min(len(tokens), self.max_tokens + 1))
        return self.cut(tokens, keep)

    def cut(self, tokens: list[int], keep: int | None) -> list[int]:
        """Return the first `keep` tokens; -1 keeps what leaves room for one more."""
        if keep is None:
            return tokens
        return tokens[: self.max_tokens - 1 if keep == -1 else keep]


def chat_text(messages: Sequence[Message], *, generate: bool = True, open_end: bool = False) -> str:
    """Return a conversation as the made-up model's chat template writes it.

    Raises:
        RequestError: There is no message.
    """
    if not messages:
        raise RequestError("Cannot apply chat template to an empty conversation. Provide at least one message.")
    text = BEGIN + "".join(f"<|{message.role}|>{message.text()}{END}" for message in messages)
    if open_end:
        return text.removesuffix(END)
    return f"{text}<|assistant|>" if generate else text


def check_output(wanted: int, *, limit: int, param: str) -> None:
    """Raise the 400 for an answer that is asked to be longer than the context."""
    if wanted > limit:
        raise RequestError(
            f"{param}={wanted} cannot be greater than max_model_len={limit}. Please request fewer output tokens.",
            param=param,
            value=wanted,
        )


def check_ranges(body: CompletionBody | ChatBody, *, max_tokens: int) -> None:
    """Raise the 400 for a sampling number out of range, the first one in vLLM's order."""
    n = 1 if body.n is None else body.n
    presence, frequency = body.presence_penalty or 0.0, body.frequency_penalty or 0.0
    repetition = 1.0 if body.repetition_penalty is None else body.repetition_penalty
    temperature = 1.0 if body.temperature is None else body.temperature
    top_p = 1.0 if body.top_p is None else body.top_p
    top_k, min_p = body.top_k or 0, body.min_p or 0.0
    stop = _stop(body.stop)
    rules: list[tuple[bool, str, str | None, object]] = [
        (n >= 1, f"n must be at least 1, got {n}.", None, None),
        (
            n <= MAX_SEQUENCES,
            (
                f"n must be at most {MAX_SEQUENCES}, got {n}. "
                "To increase this limit, set the VLLM_MAX_N_SEQUENCES environment variable."
            ),
            None,
            None,
        ),
        (-2 <= presence <= 2, f"presence_penalty must be in [-2, 2], got {presence}.", None, None),
        (-2 <= frequency <= 2, f"frequency_penalty must be in [-2, 2], got {frequency}.", None, None),
        (math.isfinite(repetition), f"repetition_penalty must be a finite number, got {repetition}.", None, None),
        (repetition > 0, f"repetition_penalty must be greater than zero, got {repetition}.", None, None),
        (
            math.isfinite(temperature),
            f"temperature must be a finite number, got {temperature}.",
            "temperature",
            temperature,
        ),
        (temperature >= 0, f"temperature must be non-negative, got {temperature}.", "temperature", temperature),
        (temperature <= 2, f"temperature must be in [0, 2], got {temperature}.", "temperature", temperature),
        (0 < top_p <= 1, f"top_p must be in (0, 1], got {top_p}.", "top_p", top_p),
        (top_k >= -1, f"top_k must be 0 (disable), or at least 1, got {top_k}.", None, None),
        (0 <= min_p <= 1, f"min_p must be in [0, 1], got {min_p}.", None, None),
        (max_tokens >= 1, f"max_tokens must be at least 1, got {max_tokens}.", "max_tokens", max_tokens),
        (
            body.min_tokens >= 0,
            f"min_tokens must be greater than or equal to 0, got {body.min_tokens}.",
            None,
            None,
        ),
        (
            body.min_tokens <= max_tokens,
            f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {body.min_tokens}.",
            None,
            None,
        ),
        ("" not in stop, "stop cannot contain an empty string.", None, None),
        (temperature >= 1e-5 or n == 1, f"n must be 1 when using greedy sampling, got {n}.", None, None),
    ]
    for holds, message, param, value in rules:
        if not holds:
            raise RequestError(message, param=param, value=value)


def _stop(stop: str | list[str] | None) -> tuple[str, ...]:
    if stop is None:
        return ()
    return (stop,) if isinstance(stop, str) else tuple(stop)


def logit_bias(given: dict[str, float] | None) -> dict[int, float]:
    """Return the bias by token id.

    Raises:
        RequestError: A key is no number.
    """
    bias: dict[int, float] = {}
    bad: list[str] = []
    for key, value in (given or {}).items():
        try:
            bias[int(key)] = min(100.0, max(-100.0, value))
        except ValueError:
            bad.append(key)
    if bad:
        raise RequestError(
            f"logit_bias contains key(s) that cannot be converted to integer token IDs: {bad!r}",
            param="logit_bias",
            value=bad,
        )
    return bias


def check_vocabulary(
    body: CompletionBody | ChatBody, bias: dict[int, float], *, logprobs: int | None, model: Model
) -> None:
    """Raise the 400 for token ids outside the vocabulary or too many log probabilities."""
    size = model.tokenizer.vocabulary_size
    for name, wanted in (("sample", logprobs), ("prompt", body.prompt_logprobs)):
        count = size if wanted == -1 else wanted or 0
        if count > model.max_logprobs:
            raise RequestError(
                f"Requested {name} logprobs of {count}, which is greater than max allowed: {model.max_logprobs}",
                param="logprobs" if name == "sample" else "prompt_logprobs",
                value=count,
            )
    for name, given in (("logit_bias", list(bias)), ("stop_token_ids", body.stop_token_ids or [])):
        outside = [token for token in given if not 0 <= token < size]
        if outside:
            raise RequestError(
                f"token_id(s) {outside} in {name} contain out-of-vocab token ids. Vocabulary size: {size}",
                param=name,
                value=outside,
            )
    allowed = body.allowed_token_ids
    if allowed is None:
        return
    if not allowed:
        raise RequestError("allowed_token_ids is not None and empty!", param="allowed_token_ids", value=allowed)
    outside = [token for token in allowed if not 0 <= token < size]
    if outside:
        raise RequestError(
            "allowed_token_ids contains out-of-vocab token id!", param="allowed_token_ids", value=outside
        )


def check_prompt(tokens: Sequence[int], *, model: Model) -> None:
    """Raise the 400 for a prompt that leaves no room for a single token, or is empty."""
    if not tokens:
        raise RequestError("The decoder prompt cannot be empty")
    outside = [token for token in tokens if token >= model.tokenizer.vocabulary_size]
    if outside:
        raise RequestError(f"Token id {max(outside)} is out of vocabulary")
    if len(tokens) >= model.max_tokens:
        raise RequestError(
            f"The decoder prompt (length {len(tokens)}) plus the number of requested output tokens (at least 1) is "
            f"longer than the maximum model length of {model.max_tokens}. Make sure that `max_model_len` is no "
            "smaller than the number of text tokens (prompt + requested output tokens)."
        )


def wishes(
    body: CompletionBody | ChatBody,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: Sequence[int],
    logprobs: int | None,
    model: Model,
) -> list[Wish]:
    """Return one wish per answer: every prompt n times, each with a seed of its own."""
    bias = logit_bias(body.logit_bias)
    end = frozenset() if body.ignore_eos else frozenset({model.tokenizer.special[END]})
    n = body.n or 1
    return [
        Wish(
            prompt=tuple(prompt),
            max_tokens=limit,
            choice=Choice(
                seed=(body.seed or 0) * MAX_SEQUENCES + number, bias=bias, allowed=tuple(body.allowed_token_ids or ())
            ),
            end_tokens=end,
            stop_tokens=frozenset(body.stop_token_ids or ()),
            min_tokens=body.min_tokens,
            logprobs=model.tokenizer.vocabulary_size if logprobs == -1 else logprobs,
            priority=body.priority,
            salt=body.cache_salt,
        )
        for prompt, limit in zip(prompts, max_tokens, strict=True)
        for number in range(n)
    ]


def stop_strings(body: CompletionBody | ChatBody) -> tuple[str, ...]:
    """Return the request's stop strings."""
    return _stop(body.stop)
