"""`POST /v1/chat/completions`, and the generation that the responses and messages interfaces build upon."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from e2e.fakevllm.engine import Wish
from e2e.fakevllm.service import CutError, Delta, Texts
from e2e.fakevllm.wire import logprobs as shapes
from e2e.fakevllm.wire.bodies import ChatBody
from e2e.fakevllm.wire.completions import DONE, Whole, collect, event, prompt_steps
from e2e.fakevllm.wire.errors import RequestError
from e2e.fakevllm.wire.host import Answer, Document, Events, Host, final_usage, request_id, short_usage, usage
from e2e.fakevllm.wire.rendering import (
    chat_text,
    check_output,
    check_prompt,
    check_ranges,
    check_vocabulary,
    logit_bias,
    stop_strings,
    wishes,
)


class Conversation:
    """One chat request on its way through the checks to its answer.

    Args:
        host: The server.
        body: The request.
        headers: Of the request, with names in lower case.
        limit_name: What a complaint calls the limit of tokens; by default the field that sets it.
    """

    def __init__(
        self, host: Host, body: ChatBody, headers: Mapping[str, str], *, limit_name: str | None = None
    ) -> None:
        host.model.check_name(body.model)
        host.service.admit(body.n or 1)
        host.service.check_rendering()
        limit = host.model.max_tokens
        wanted, param = body.max_tokens, "max_tokens"
        if body.max_completion_tokens is not None:
            wanted, param = body.max_completion_tokens, "max_completion_tokens"
        check_output(wanted or 0, limit=limit, param=limit_name or param)
        text = chat_text(body.messages, generate=body.add_generation_prompt, open_end=body.continue_final_message)
        self.host = host
        self.body = body
        keep = body.truncate_prompt_tokens
        self.prompt = host.model.encode(text, special=body.add_special_tokens, keep=keep)
        room = limit - len(self.prompt)
        self.length = room if wanted is None else min(wanted, room)
        logit_bias(body.logit_bias)
        check_ranges(body, max_tokens=self.length)
        self.id = f"chatcmpl-{request_id(headers, body.request_id)}"
        self.created = int(time.time())
        self.n = body.n or 1
        self.texts = Texts(stop_strings(body), body.include_stop_str_in_output, body.skip_special_tokens)
        self.count = body.top_logprobs if body.logprobs else None
        self.role = "assistant" if body.add_generation_prompt else body.messages[-1].role

    def plan(self) -> list[Wish]:
        """Make the checks that belong to the engine and return what to generate."""
        check_prompt(self.prompt, model=self.host.model)
        bias = logit_bias(self.body.logit_bias)
        check_vocabulary(self.body, bias, logprobs=self.count, model=self.host.model)
        return wishes(self.body, [self.prompt], max_tokens=[self.length], logprobs=self.count, model=self.host.model)

    async def answers(self) -> list[Whole]:
        """Generate everything."""
        return await collect(self.host, self.plan(), self.texts, n=self.n)

    async def deltas(self) -> AsyncIterator[Delta]:
        """Generate piece by piece."""
        async for delta in self.host.service.answer(self.plan(), self.texts, n=self.n):
            yield delta

    def logprobs(self, steps: shapes.Steps) -> dict[str, Any] | None:
        """Return a choice's log probabilities if they were asked for."""
        if self.count is None:
            return None
        count = self.count if self.count >= 0 else self.host.model.tokenizer.vocabulary_size
        as_id = bool(self.body.return_tokens_as_token_ids)
        return shapes.chat(self.host.model.tokenizer, steps, count=count, as_id=as_id)

    async def whole(self) -> Document:
        """Return the answer in one piece."""
        host, body = self.host, self.body
        answers = await self.answers()
        echo = body.messages[-1].text() if body.echo and body.messages[-1].role == self.role else ""
        choices = [
            {
                "index": index,
                "message": {
                    "role": self.role,
                    "content": echo + answer.text,
                    "refusal": None,
                    "annotations": None,
                    "audio": None,
                    "function_call": None,
                    "reasoning": None,
                },
                "logprobs": self.logprobs(answer.steps),
                "finish_reason": answer.finish,
                "stop_reason": answer.stop_reason,
                "token_ids": answer.tokens if body.return_token_ids else None,
                "routed_experts": None,
            }
            for index, answer in enumerate(answers)
        ]
        count = body.top_logprobs if body.echo and body.prompt_logprobs is None else body.prompt_logprobs
        steps = None if count is None else prompt_steps(host, self.prompt, count=max(count, 0))
        return Document(
            {
                "id": self.id,
                "object": "chat.completion",
                "created": self.created,
                "model": host.model.names[0],
                "choices": choices,
                "service_tier": None,
                "system_fingerprint": host.fingerprint,
                "usage": usage(
                    len(self.prompt),
                    sum(len(answer.tokens) for answer in answers),
                    cached=answers[0].cached,
                    details=host.cached_tokens,
                    created=0,
                ),
                "prompt_logprobs": None if steps is None else shapes.prompt(host.model.tokenizer, steps),
                "prompt_token_ids": self.prompt if body.return_token_ids else None,
                "prompt_text": None,
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": None,
            }
        )

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.host.model.names[0],
            "choices": choices,
            **more,
        }

    async def stream(self) -> AsyncIterator[str]:
        """Yield the answer's events; the roles come with the first token, not before."""
        host, body = self.host, self.body
        options = body.stream_options
        ask = bool(options and options.include_usage)
        continuous = host.always_usage or (ask and bool(options and options.continuous_usage_stats))
        ask = ask or host.always_usage
        produced = [0] * self.n
        cached: int | None = None
        try:
            async for delta in self.deltas():
                if cached is None:
                    cached = delta.cached
                    for index in range(self.n):
                        yield event(self._opening(index, continuous=continuous))
                produced[delta.index] += len(delta.tokens)
                more: dict[str, Any] = {}
                if continuous:
                    more["usage"] = self._usage(produced[delta.index])
                if not ask and delta.finish is not None:
                    more["system_fingerprint"] = host.fingerprint
                yield event(self._chunk([self._choice(delta)], **more))
            if ask:
                total = final_usage(host, len(self.prompt), sum(produced), cached=cached, created=True)
                yield event(self._chunk([], usage=total, system_fingerprint=host.fingerprint))
        except CutError:
            raise
        except RequestError as error:
            yield event(error.body())
        yield DONE

    def _usage(self, produced: int) -> dict[str, int | None]:
        return {**short_usage(len(self.prompt), produced), "completion_tokens_details": None}

    def _opening(self, index: int, *, continuous: bool) -> dict[str, Any]:
        delta = {"role": self.role, "content": ""}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        more: dict[str, Any] = {"usage": self._usage(0)} if continuous else {}
        shown = self.prompt if self.body.return_token_ids else None
        return self._chunk([choice], **more, prompt_token_ids=shown, prompt_text=None)

    def _choice(self, delta: Delta) -> dict[str, Any]:
        choice = {
            "index": delta.index,
            "delta": {"content": delta.text},
            "logprobs": self.logprobs([(token, delta.ranked) for token in delta.tokens]),
            "finish_reason": delta.finish,
            "token_ids": list(delta.tokens) if self.body.return_token_ids else None,
        }
        if delta.finish is not None:
            choice["stop_reason"] = delta.stop_reason
        return choice


async def chat(host: Host, document: object, headers: Mapping[str, str]) -> Answer:
    """Answer a chat completion request.

    Raises:
        RequestError: It is refused before the first token.
    """
    conversation = Conversation(host, ChatBody.read(document), headers)
    return Events(conversation.stream()) if conversation.body.stream else await conversation.whole()
