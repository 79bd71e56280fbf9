"""`POST /v1/messages` and its `count_tokens`: the same generation in Anthropic's words."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from e2e.fakevllm.service import CutError
from e2e.fakevllm.wire.bodies import ChatBody, CountBody, MessagesBody
from e2e.fakevllm.wire.chat import Conversation
from e2e.fakevllm.wire.errors import RequestError
from e2e.fakevllm.wire.host import Answer, Document, Events, Host
from e2e.fakevllm.wire.rendering import chat_text


def stop_reason(finish: str | None, reason: int | str | None) -> tuple[str | None, str | None]:
    """Return `stop_reason` and `stop_sequence` for a finish reason."""
    if finish == "length":
        return "max_tokens", None
    if finish != "stop":
        return None, None
    return ("stop_sequence", reason) if isinstance(reason, str) else ("end_turn", None)


def refusal(error: RequestError) -> Document:
    """Return an error the way this interface words it."""
    return Document({"type": "error", "error": {"type": error.type, "message": str(error)}}, error.status)


def _conversation(host: Host, body: MessagesBody, headers: Mapping[str, str]) -> Conversation:
    wish = ChatBody.model_construct(
        messages=body.chat(),
        model=body.model,
        max_tokens=body.max_tokens,
        stop=body.stop_sequences or [],
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
    )
    return Conversation(host, wish, headers, limit_name="max_completion_tokens")


async def _whole(conversation: Conversation) -> Document:
    (answer,) = await conversation.answers()
    reason, sequence = stop_reason(answer.finish, answer.stop_reason)
    body = {
        "id": conversation.id,
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": answer.text}],
        "model": conversation.host.model.names[0],
        "stop_reason": reason,
        "stop_sequence": sequence,
        "usage": {"input_tokens": len(conversation.prompt), "output_tokens": len(answer.tokens)},
    }
    return Document({key: value for key, value in body.items() if value is not None})


def _event(document: dict[str, Any]) -> str:
    return f"event: {document['type']}\ndata: {json.dumps(document, ensure_ascii=False, separators=(',', ':'))}\n\n"


async def _stream(conversation: Conversation) -> AsyncIterator[str]:
    prompt, produced = len(conversation.prompt), 0
    started = opened = False
    try:
        async for delta in conversation.deltas():
            if not started:
                started = True
                yield _event(_opening(conversation))
            produced += len(delta.tokens)
            if delta.text:
                if not opened:
                    opened = True
                    block = {"type": "text", "text": ""}
                    yield _event({"type": "content_block_start", "content_block": block, "index": 0})
                piece = {"type": "text_delta", "text": delta.text}
                yield _event({"type": "content_block_delta", "delta": piece, "index": 0})
            if delta.finish is not None:
                reason, sequence = stop_reason(delta.finish, delta.stop_reason)
                if opened:
                    yield _event({"type": "content_block_stop", "index": 0})
                usage = {"input_tokens": prompt, "output_tokens": produced}
                end = {"stop_reason": reason, "stop_sequence": sequence}
                yield _event({"type": "message_delta", "delta": end, "usage": usage})
        yield _event({"type": "message_stop"})
    except CutError:
        raise
    except RequestError as error:
        yield _event({"type": "error", "error": {"type": error.type, "message": str(error)}})


def _opening(conversation: Conversation) -> dict[str, Any]:
    return {
        "type": "message_start",
        "message": {
            "id": conversation.id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": conversation.host.model.names[0],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": len(conversation.prompt), "output_tokens": 0},
        },
    }


async def messages(host: Host, document: object, headers: Mapping[str, str]) -> Answer:
    """Answer a request of the messages interface; only a malformed body gets the other interfaces' kind of error.

    Raises:
        BodyError: The body is malformed.
    """
    body = MessagesBody.read(document)
    try:
        conversation = _conversation(host, body, headers)
        return Events(_stream(conversation)) if body.stream else await _whole(conversation)
    except RequestError as error:
        return refusal(error)


async def count_tokens(host: Host, document: object, _headers: Mapping[str, str]) -> Answer:
    """Count the tokens of a conversation.

    Raises:
        BodyError: The body is malformed.
    """
    body = CountBody.read(document)
    try:
        host.model.check_name(body.model)
        host.service.admit(1)
        host.service.check_rendering()
        count = len(host.model.encode(chat_text(body.chat()), special=False))
    except RequestError as error:
        return refusal(error)
    return Document({"input_tokens": count, "context_management": {"original_input_tokens": count}})
