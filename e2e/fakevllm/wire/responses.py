"""`POST /v1/responses`: the same generation, told as numbered events about one output item."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from e2e.fakevllm.service import CutError
from e2e.fakevllm.wire.bodies import ChatBody, Message, ResponsesBody
from e2e.fakevllm.wire.chat import Conversation
from e2e.fakevllm.wire.completions import Whole
from e2e.fakevllm.wire.errors import RequestError
from e2e.fakevllm.wire.host import Answer, Document, Events, Host, new_id


class _Response:
    """One request of the responses interface."""

    def __init__(self, host: Host, body: ResponsesBody, headers: Mapping[str, str]) -> None:
        self.host = host
        self.body = body
        host.model.check_name(body.model)
        messages = [Message(role="user", content=body.input)] if isinstance(body.input, str) else list(body.input)
        if body.instructions is not None:
            messages.insert(0, Message(role="system", content=body.instructions))
        wish = ChatBody.model_construct(
            messages=messages,
            max_tokens=body.max_output_tokens,
            temperature=body.temperature,
            top_p=body.top_p,
            top_k=body.top_k,
            logit_bias=body.logit_bias,
            ignore_eos=body.ignore_eos,
            stop=body.stop,
            seed=body.seed,
            priority=body.priority,
            # The template already begins with the begin token; this interface puts another one in front.
            add_special_tokens=True,
        )
        self.conversation = Conversation(host, wish, headers, limit_name="max_output_tokens")
        self.id = f"resp_{headers.get('x-request-id') or new_id()}"
        self.item_id = f"msg_{new_id()}"
        self.created = int(time.time())

    def document(
        self, status: str, *, output: list[Any], usage: dict[str, Any] | None, cause: str | None
    ) -> dict[str, Any]:
        """Return the response object."""
        body = self.body
        return {
            "id": self.id,
            "created_at": self.created,
            "incomplete_details": None if cause is None else {"reason": cause},
            "instructions": body.instructions,
            "metadata": body.metadata,
            "model": self.host.model.names[0] if body.model is None else body.model,
            "object": "response",
            "output": output,
            "parallel_tool_calls": body.parallel_tool_calls,
            "temperature": 1.0 if body.temperature is None else body.temperature,
            "tool_choice": "none",
            "tools": [],
            "top_p": 1.0 if body.top_p is None else body.top_p,
            "background": body.background,
            "max_output_tokens": self.conversation.length,
            "max_tool_calls": None,
            "previous_response_id": body.previous_response_id,
            "prompt": None,
            "reasoning": None,
            "service_tier": body.service_tier,
            "status": status,
            "text": None,
            "top_logprobs": None,
            "truncation": body.truncation,
            "usage": usage,
            "user": body.user,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "input_messages": None,
            "output_messages": None,
        }

    def finished(self, answer: Whole, *, streamed: bool = False) -> dict[str, Any]:
        """Return the response object of a finished answer; a streamed one lists no item that was never opened."""
        cause = {"length": "max_output_tokens", "abort": None}.get(answer.finish or "")
        status = {"length": "incomplete", "abort": "cancelled"}.get(answer.finish or "", "completed")
        prompt, produced = len(self.conversation.prompt), len(answer.tokens)
        usage = {
            "input_tokens": prompt,
            "input_tokens_details": {
                "cached_tokens": 0,
                "cache_write_tokens": 0,
                "input_tokens_per_turn": [],
                "cached_tokens_per_turn": [],
            },
            "output_tokens": produced,
            "output_tokens_details": {
                "reasoning_tokens": 0,
                "tool_output_tokens": 0,
                "output_tokens_per_turn": [],
                "tool_output_tokens_per_turn": [],
            },
            "total_tokens": prompt + produced,
        }
        output = [self.item(answer.text)] if answer.text or not streamed else []
        return self.document(status, output=output, usage=usage, cause=cause)

    def item(self, text: str) -> dict[str, Any]:
        """Return the one output item."""
        return {
            "id": self.item_id,
            "content": [_part(text, logprobs=None)] if text else [],
            "role": "assistant",
            "status": "completed",
            "type": "message",
            "phase": None,
        }

    async def whole(self) -> Document:
        """Return the answer in one piece."""
        (answer,) = await self.conversation.answers()
        return Document(self.finished(answer))

    async def stream(self) -> AsyncIterator[str]:
        """Yield the answer's events."""
        number = 0

        def tell(kind: str, **fields: Any) -> str:
            nonlocal number
            text = json.dumps(
                {**fields, "sequence_number": number, "type": kind}, ensure_ascii=False, separators=(",", ":")
            )
            number += 1
            return f"event: {kind}\ndata: {text}\n\n"

        answer = Whole()
        place = {"output_index": 0}
        part = {"content_index": 0, "item_id": self.item_id, **place}
        start = self.document("in_progress", output=[], usage=None, cause=None)
        try:
            yield tell("response.created", response=start)
            yield tell("response.in_progress", response=start)
            opened = False
            async for delta in self.conversation.deltas():
                answer.add(delta)
                if delta.text and not opened:
                    opened = True
                    item = {**self.item(""), "status": "in_progress"}
                    yield tell("response.output_item.added", item=item, **place)
                    yield tell("response.content_part.added", part=_part("", logprobs=[]), **part)
                if delta.text:
                    yield tell("response.output_text.delta", delta=delta.text, logprobs=[], **part)
            if opened:
                yield tell("response.output_text.done", logprobs=[], text=answer.text, **part)
                yield tell("response.content_part.done", part=_part(answer.text, logprobs=None), **part)
                yield tell("response.output_item.done", item=self.item(answer.text), **place)
            yield tell("response.completed", response=self.finished(answer, streamed=True))
        except CutError:
            raise
        except RequestError as error:
            yield f"data: {json.dumps(error.body(), ensure_ascii=False)}\n\n"


def _part(text: str, *, logprobs: list[Any] | None) -> dict[str, Any]:
    return {"annotations": [], "text": text, "type": "output_text", "logprobs": logprobs}


async def responses(host: Host, document: object, headers: Mapping[str, str]) -> Answer:
    """Answer a request of the responses interface.

    Raises:
        RequestError: It is refused before the first event.
    """
    body = ResponsesBody.read(document)
    response = _Response(host, body, headers)
    return Events(response.stream()) if body.stream else await response.whole()
