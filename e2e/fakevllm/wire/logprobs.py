"""Log probabilities in the three shapes vLLM reports them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from e2e.fakevllm.sampler import Ranked
from e2e.fakevllm.tokenizer import Tokenizer

Steps = Sequence[tuple[int, list[Ranked] | None]]


def name(tokenizer: Tokenizer, token: int, *, as_id: bool) -> str:
    """Return how a token is spelled in log probabilities."""
    return f"token_id:{token}" if as_id else tokenizer.decode([token], skip_special=False)


def completion(tokenizer: Tokenizer, steps: Steps, *, count: int, as_id: bool, offset: int = 0) -> dict[str, Any]:
    """Return `choices[].logprobs` of a completion; a step without numbers (the first of a prompt) has null."""
    offsets, logprobs, tokens = [], [], []
    top: list[dict[str, float] | None] = []
    for token, ranked in steps:
        spelled = name(tokenizer, token, as_id=as_id)
        offsets.append(offset)
        offset += len(spelled)
        tokens.append(spelled)
        logprobs.append(None if ranked is None else ranked[0].logprob)
        top.append(
            None
            if ranked is None
            else {name(tokenizer, entry.token, as_id=as_id): entry.logprob for entry in ranked[: count + 1]}
        )
    return {"text_offset": offsets, "token_logprobs": logprobs, "tokens": tokens, "top_logprobs": top}


def chat(tokenizer: Tokenizer, steps: Steps, *, count: int, as_id: bool) -> dict[str, Any]:
    """Return `choices[].logprobs` of a chat completion."""

    def entry(ranked: Ranked) -> dict[str, Any]:
        spelled = name(tokenizer, ranked.token, as_id=as_id)
        return {"token": spelled, "logprob": ranked.logprob, "bytes": list(spelled.encode())}

    content = []
    for token, ranked in steps:
        if ranked is not None:
            spelled = name(tokenizer, token, as_id=False)
            content.append(
                {
                    **entry(ranked[0]),
                    "bytes": list(spelled.encode()),
                    "top_logprobs": [entry(other) for other in ranked[:count]],
                }
            )
    return {"content": content}


def prompt(tokenizer: Tokenizer, steps: Steps) -> list[dict[str, Any] | None]:
    """Return `prompt_logprobs`: per prompt token, by token id."""
    return [
        None
        if ranked is None
        else {
            str(entry.token): {
                "logprob": entry.logprob,
                "rank": entry.rank,
                "decoded_token": name(tokenizer, entry.token, as_id=False),
            }
            for entry in ranked
        }
        for _, ranked in steps
    ]
