"""What a streamed answer says about itself at its end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def ending(stream: Iterable[Any]) -> tuple[str, int]:
    """Read a stream of the official client to its end; return the finish reason and the tokens the engine counted.

    Args:
        stream: Chunks of a chat or text completion, asked for with `include_usage`.
    """
    finish, tokens = "", 0
    for chunk in stream:
        if chunk.choices and chunk.choices[0].finish_reason:
            finish = chunk.choices[0].finish_reason
        if chunk.usage:
            tokens = chunk.usage.completion_tokens
    return finish, tokens
