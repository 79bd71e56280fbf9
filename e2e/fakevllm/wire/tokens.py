"""`/v1/models`, `/tokenize` and `/detokenize`: what is served and how it counts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from e2e.fakevllm.wire.bodies import DetokenizeBody, TokenizeChatBody, TokenizeTextBody
from e2e.fakevllm.wire.errors import BodyError, RequestError
from e2e.fakevllm.wire.host import Answer, Document, Host, new_id
from e2e.fakevllm.wire.rendering import chat_text


def models(host: Host) -> Document:
    """Return the list of models: one entry per served name."""
    now = int(time.time())

    def permission() -> dict[str, Any]:
        return {
            "id": f"modelperm-{new_id()}",
            "object": "model_permission",
            "created": now,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }

    cards = [
        {
            "id": name,
            "object": "model",
            "created": now,
            "owned_by": "vllm",
            "root": host.model.root,
            "parent": None,
            "max_model_len": host.model.max_tokens,
            "permission": [permission()],
        }
        for name in host.model.names
    ]
    return Document({"object": "list", "data": cards})


def _read(document: object) -> TokenizeTextBody | TokenizeChatBody:
    try:
        return TokenizeTextBody.read(document)
    except BodyError as text_error:
        try:
            return TokenizeChatBody.read(document)
        except BodyError as chat_error:
            raise BodyError([*text_error.errors, *chat_error.errors]) from None


async def tokenize(host: Host, document: object, _headers: Mapping[str, str]) -> Answer:
    """Return the tokens of a text or a conversation; their number is not limited.

    Raises:
        RequestError: The body is malformed or the model unknown.
    """
    body = _read(document)
    host.model.check_name(body.model)
    host.service.check_rendering()
    if isinstance(body, TokenizeTextBody):
        text = body.prompt
    else:
        if body.continue_final_message and body.add_generation_prompt:
            raise RequestError("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
        text = chat_text(body.messages, generate=body.add_generation_prompt, open_end=body.continue_final_message)
    tokenizer = host.model.tokenizer
    tokens = host.model.tokens(text, special=body.add_special_tokens)
    return Document(
        {
            "count": len(tokens),
            "max_model_len": host.model.max_tokens,
            "tokens": tokens,
            "token_strs": [tokenizer.token(token) for token in tokens] if body.return_token_strs else None,
        }
    )


async def detokenize(host: Host, document: object, _headers: Mapping[str, str]) -> Answer:
    """Return the text of tokens, special ones by name.

    Raises:
        RequestError: The body is malformed or the model unknown.
    """
    body = DetokenizeBody.read(document)
    host.model.check_name(body.model)
    host.service.check_rendering()
    return Document({"prompt": host.model.tokenizer.decode(body.tokens, skip_special=False)})
