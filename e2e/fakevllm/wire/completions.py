"""`POST /v1/completions`."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from e2e.fakevllm.engine import Wish
from e2e.fakevllm.sampler import Ranked, stir
from e2e.fakevllm.service import CutError, Delta, Texts
from e2e.fakevllm.wire import logprobs as shapes
from e2e.fakevllm.wire.bodies import CompletionBody
from e2e.fakevllm.wire.errors import RequestError
from e2e.fakevllm.wire.host import Answer, Document, Events, Host, final_usage, request_id, short_usage, usage
from e2e.fakevllm.wire.rendering import (
    check_output,
    check_prompt,
    check_ranges,
    check_vocabulary,
    logit_bias,
    stop_strings,
    wishes,
)


def event(document: Any) -> str:
    """Return one server-sent event."""
    return f"data: {json.dumps(document, ensure_ascii=False, separators=(',', ':'))}\n\n"


DONE = "data: [DONE]\n\n"


@dataclass(slots=True)
class Whole:
    """One answer put together from its deltas."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    steps: list[tuple[int, list[Ranked] | None]] = field(default_factory=list)
    finish: str | None = None
    stop_reason: int | str | None = None
    cached: int = 0

    def add(self, delta: Delta) -> None:
        """Append what a step brought."""
        self.text += delta.text
        self.cached = delta.cached
        self.tokens += delta.tokens
        self.steps += [(token, delta.ranked) for token in delta.tokens]
        if delta.finish is not None:
            self.finish, self.stop_reason = delta.finish, delta.stop_reason


async def collect(host: Host, plan: list[Wish], texts: Texts, *, n: int) -> list[Whole]:
    """Return all answers of a request when the last is finished."""
    answers = [Whole() for _ in plan]
    async for delta in host.service.answer(plan, texts, n=n):
        answers[delta.index].add(delta)
    return answers


def prompt_steps(host: Host, prompt: list[int], *, count: int) -> list[tuple[int, list[Ranked] | None]]:
    """Return made-up log probabilities of a prompt's tokens, none for the first."""
    sampler = host.service.engine.sampler
    state = 0
    steps: list[tuple[int, list[Ranked] | None]] = []
    for token in prompt:
        ranked = sampler.rank(state, token, count) if steps else None
        steps.append((token, ranked))
        state = stir(state, token)
    return steps


class _Completion:
    """One request on its way through the checks to its answer."""

    def __init__(self, host: Host, body: CompletionBody, headers: Mapping[str, str]) -> None:
        host.model.check_name(body.model)
        host.service.admit(body.n or 1)
        host.service.check_rendering()
        limit = host.model.max_tokens
        check_output(body.max_tokens, limit=limit, param="max_tokens")
        self.host = host
        self.body = body
        if not body.prompts():
            raise RequestError("You must pass at least one prompt")
        self.prompts = [self._tokens(prompt) for prompt in body.prompts()]
        self.lengths = [min(body.max_tokens, limit - len(prompt)) for prompt in self.prompts]
        self.only_prompt = bool(body.echo) and body.max_tokens == 0
        if self.only_prompt:
            self.lengths = [1 for _ in self.prompts]
        logit_bias(body.logit_bias)
        for length in self.lengths:
            check_ranges(body, max_tokens=length)
        self.id = f"cmpl-{request_id(headers, body.request_id)}"
        self.created = int(time.time())
        self.n = body.n or 1
        self.texts = Texts(stop_strings(body), body.include_stop_str_in_output, body.skip_special_tokens)
        self.prompt_count = body.prompt_logprobs
        if self.prompt_count is None and body.echo:
            self.prompt_count = body.logprobs

    def _tokens(self, prompt: str | list[int]) -> list[int]:
        keep, model = self.body.truncate_prompt_tokens, self.host.model
        if isinstance(prompt, str):
            return model.encode(prompt, special=self.body.add_special_tokens, keep=keep)
        tokens = model.cut(prompt, keep)
        model.check_length(len(tokens))
        return tokens

    def plan(self) -> list[Wish]:
        """Make the checks that belong to the engine and return what to generate."""
        for prompt in self.prompts:
            check_prompt(prompt, model=self.host.model)
        bias = logit_bias(self.body.logit_bias)
        check_vocabulary(self.body, bias, logprobs=self.body.logprobs, model=self.host.model)
        return wishes(
            self.body, self.prompts, max_tokens=self.lengths, logprobs=self.body.logprobs, model=self.host.model
        )

    def logprobs(self, steps: shapes.Steps, *, offset: int = 0) -> dict[str, Any] | None:
        """Return a choice's log probabilities if they were asked for."""
        if self.body.logprobs is None:
            return None
        count = self.body.logprobs if self.body.logprobs >= 0 else self.host.model.tokenizer.vocabulary_size
        as_id = bool(self.body.return_tokens_as_token_ids)
        return shapes.completion(self.host.model.tokenizer, steps, count=count, as_id=as_id, offset=offset)

    def prompt_of(self, index: int) -> list[int]:
        """Return the prompt an answer belongs to."""
        return self.prompts[index // self.n]

    def echoed(self, index: int) -> str:
        """Return the prompt's text as an echo shows it."""
        if self.body.return_token_ids:
            return ""
        given = self.body.prompts()[index // self.n]
        return given if isinstance(given, str) else self.host.model.tokenizer.decode(given, skip_special=False)

    async def whole(self) -> Document:
        """Return the answer in one piece."""
        host, body = self.host, self.body
        answers = await collect(host, self.plan(), self.texts, n=self.n)
        choices = []
        for index, answer in enumerate(answers):
            prompt = self.prompt_of(index)
            steps = prompt_steps(host, prompt, count=max(self.prompt_count or 0, 0))
            text, listed = answer.text, answer.steps
            if body.echo:
                text = self.echoed(index) + ("" if self.only_prompt else answer.text)
                listed = steps if self.only_prompt else [*steps, *answer.steps]
            tokenizer = host.model.tokenizer
            choices.append(
                {
                    "index": index,
                    "text": text,
                    "logprobs": self.logprobs(listed),
                    "finish_reason": answer.finish,
                    "stop_reason": answer.stop_reason,
                    "token_ids": answer.tokens if body.return_token_ids else None,
                    "prompt_logprobs": None if self.prompt_count is None else shapes.prompt(tokenizer, steps),
                    "prompt_token_ids": prompt if body.return_token_ids else None,
                    "routed_experts": None,
                }
            )
        produced = sum(len(answer.tokens) for answer in answers)
        received = sum(len(prompt) for prompt in self.prompts)
        return Document(
            {
                "id": self.id,
                "object": "text_completion",
                "created": self.created,
                "model": host.model.names[0],
                "choices": choices,
                "service_tier": None,
                "system_fingerprint": host.fingerprint,
                "usage": usage(received, produced, cached=answers[-1].cached, details=host.cached_tokens),
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": None,
            }
        )

    async def stream(self) -> AsyncIterator[str]:
        """Yield the answer's events."""
        host, body = self.host, self.body
        options = body.stream_options
        ask = bool(options and options.include_usage)
        continuous = host.always_usage or (ask and bool(options and options.continuous_usage_stats))
        ask = ask or host.always_usage
        try:
            plan = self.plan()
            produced, offsets = [0] * len(plan), [0] * len(plan)
            cached: int | None = None
            async for delta in host.service.answer(plan, self.texts, n=self.n):
                index = delta.index
                first = produced[index] == 0
                cached = delta.cached if cached is None else cached
                chunk = self._chunk(delta, first=first, offset=offsets[index])
                offsets[index] += len(delta.text)
                produced[index] += len(delta.tokens)
                if not ask and delta.finish is not None:
                    chunk["system_fingerprint"] = host.fingerprint
                if continuous:
                    chunk["usage"] = short_usage(len(self.prompt_of(index)), produced[index])
                yield event(chunk)
            if ask:
                received = sum(len(prompt) for prompt in self.prompts)
                yield event(
                    {
                        **self._head(),
                        "choices": [],
                        "usage": final_usage(host, received, sum(produced), cached=cached),
                        "system_fingerprint": host.fingerprint,
                    }
                )
        except CutError:
            raise
        except RequestError as error:
            yield event(error.body())
        yield DONE

    def _head(self) -> dict[str, Any]:
        return {"id": self.id, "object": "text_completion", "created": self.created, "model": self.host.model.names[0]}

    def _chunk(self, delta: Delta, *, first: bool, offset: int) -> dict[str, Any]:
        body = self.body
        text = delta.text
        steps: list[tuple[int, list[Ranked] | None]] = [(token, delta.ranked) for token in delta.tokens]
        prompt = self.prompt_of(delta.index)
        shown_prompt = None
        if first and body.echo:
            before = prompt_steps(self.host, prompt, count=max(self.prompt_count or 0, 0))
            text = self.echoed(delta.index) + ("" if self.only_prompt else text)
            steps = before if self.only_prompt else [*before, *steps]
            shown_prompt = prompt
        elif first and body.return_token_ids:
            shown_prompt = prompt
        choice = {
            "index": delta.index,
            "text": text,
            "logprobs": self.logprobs(steps, offset=offset),
            "finish_reason": delta.finish,
            "stop_reason": delta.stop_reason,
            "prompt_token_ids": shown_prompt,
            "token_ids": list(delta.tokens) if body.return_token_ids else None,
        }
        return {**self._head(), "choices": [choice]}


async def completions(host: Host, document: object, headers: Mapping[str, str]) -> Answer:
    """Answer a completion request.

    Raises:
        RequestError: It is refused before the first token.
    """
    request = _Completion(host, CompletionBody.read(document), headers)
    return Events(request.stream()) if request.body.stream else await request.whole()
