"""What a generation request wants, as far as its admission and the reading of its answer depend on it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from penstock.admission.cost import PromptSize


class Kind(StrEnum):
    """What a path does, which decides what its body means and what its answers look like."""

    CHAT = "chat"
    """OpenAI's chat completions."""

    COMPLETIONS = "completions"
    """OpenAI's completions."""

    NATIVE = "native"
    """llama.cpp's own completions."""

    MESSAGES = "messages"
    """Anthropic's messages."""

    RESPONSES = "responses"
    """OpenAI's responses."""

    ENCODE = "encode"
    """Reads the prompt and generates nothing: embeddings, scores, ranks."""

    COUNT = "count"
    """Never reaches the model: tokenizers and templates."""

    AUDIO = "audio"
    """A recording in a form; not JSON."""

    __hash__ = str.__hash__

    @property
    def generates(self) -> bool:
        """Whether there is output to be reserved."""
        return self not in _WITHOUT_OUTPUT

    @property
    def reports_usage(self) -> bool:
        """Whether answers are JSON that can say what they used."""
        return self not in _WITHOUT_USAGE


_WITHOUT_OUTPUT: Final = frozenset({Kind.ENCODE, Kind.COUNT})
_WITHOUT_USAGE: Final = frozenset({Kind.COUNT, Kind.AUDIO})
_USAGE_ON_REQUEST: Final = frozenset({Kind.CHAT, Kind.COMPLETIONS})

KINDS: Final[dict[str, Kind]] = {
    "/chat/completions": Kind.CHAT,
    "/v1/chat/completions": Kind.CHAT,
    "/v1/chat/completions/batch": Kind.CHAT,
    "/v1/completions": Kind.COMPLETIONS,
    "/completion": Kind.NATIVE,
    "/completions": Kind.NATIVE,
    "/infill": Kind.NATIVE,
    "/v1/messages": Kind.MESSAGES,
    "/responses": Kind.RESPONSES,
    "/v1/responses": Kind.RESPONSES,
    "/classify": Kind.ENCODE,
    "/embedding": Kind.ENCODE,
    "/embeddings": Kind.ENCODE,
    "/pooling": Kind.ENCODE,
    "/rerank": Kind.ENCODE,
    "/reranking": Kind.ENCODE,
    "/score": Kind.ENCODE,
    "/v1/embeddings": Kind.ENCODE,
    "/v1/rerank": Kind.ENCODE,
    "/v1/reranking": Kind.ENCODE,
    "/v1/score": Kind.ENCODE,
    "/v2/embed": Kind.ENCODE,
    "/v2/rerank": Kind.ENCODE,
    "/apply-template": Kind.COUNT,
    "/detokenize": Kind.COUNT,
    "/tokenize": Kind.COUNT,
    "/v1/chat/completions/input_tokens": Kind.COUNT,
    "/v1/messages/count_tokens": Kind.COUNT,
    "/v1/responses/input_tokens": Kind.COUNT,
    "/v1/audio/transcriptions": Kind.AUDIO,
    "/v1/audio/translations": Kind.AUDIO,
}
"""The kind of every generation path of the engines' allow-lists."""


NO_PROMPT: Final = PromptSize()


class Wish(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a request wants.

    Attributes:
        kind: What its path does.
        model: The model it names; None when it leaves that to the engine.
        stream: Whether the answer comes in events.
        include_usage: Whether the client asked for usage at the end of the stream.
        sequences: Answers that are generated side by side.
        max_output_tokens: The most tokens of one answer; None without a bound, 0 when nothing is generated.
        prompt: The size of its prompt.
    """

    kind: Kind
    model: str | None = None
    stream: bool = False
    include_usage: bool = False
    sequences: int = 1
    max_output_tokens: int | None = None
    prompt: PromptSize = NO_PROMPT

    @property
    def can_add_usage(self) -> bool:
        """Whether `with_usage` makes the engine report a usage that it would not report otherwise."""
        return self.stream and not self.include_usage and self.kind in _USAGE_ON_REQUEST
