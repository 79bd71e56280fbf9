"""What an answer says of itself: what it used, whether it failed, whether it was broken off.

Both APIs and both engines say it in different places; this reads all of them with one decoder. Later words count over
earlier ones, since engines repeat their counts while they grow.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from penstock.admission.errorclass import EngineError, error_of

_USAGE_KEY: Final = re.compile(r'"(usage|timings)"[ \t\r\n]*:[ \t\r\n]*(?=\{)')
_BROKEN_OFF: Final = frozenset({"failed", "cancelled"})


class _Usage(msgspec.Struct):
    """The names of both APIs."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None


class _Timings(msgspec.Struct):
    """llama.cpp's own counts; the prompt's cached part is apart."""

    cache_n: int | None = None
    prompt_n: int | None = None
    predicted_n: int | None = None


class _Choice(msgspec.Struct):
    finish_reason: Any = None
    delta: Any = None
    text: Any = None


class _Nested(msgspec.Struct):
    """Where Anthropic's first and OpenAI's last event carry the whole answer."""

    usage: _Usage | None = None
    status: Any = None
    error: Any = None


class Event(msgspec.Struct):
    """The fields that matter, of events and of whole answers."""

    usage: _Usage | None = None
    timings: _Timings | None = None
    choices: list[_Choice] | None = None
    error: Any = None
    status: Any = None
    message: Any = None
    response: _Nested | None = None
    tokens_evaluated: int | None = None
    tokens_predicted: int | None = None


_DECODER = msgspec.json.Decoder(Event)
_PLAIN = json.JSONDecoder()


def decode(text: bytes) -> Event | None:
    """Read an object; None for what is none, or has fields of other types than both APIs give them."""
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


class Report:
    """What is known of an answer so far.

    Attributes:
        prompt_tokens: Tokens of the prompt with cached ones, as reported; None when they were not.
        output_tokens: Generated tokens as reported; None when they were not.
        chunks: Events with a token so far: what was generated, as far as can be counted.
        error: The error that the answer carries; None without one.
        aborted: Whether the engine gave up an answer it had begun.
    """

    __slots__ = ("_stream", "aborted", "chunks", "error", "output_tokens", "prompt_tokens")

    def __init__(self, *, stream: bool) -> None:
        """Begin to know nothing; `stream` says whether the answer comes in events."""
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.chunks = 0
        self.error: EngineError | None = None
        self.aborted = False
        self._stream = stream

    @property
    def generated_tokens(self) -> int | None:
        """Generated tokens: as reported, else as counted; None when that cannot be known."""
        if self.output_tokens is None and self._stream:
            return self.chunks
        return self.output_tokens

    def take(self, seen: Event) -> None:
        """Take over what an event or an answer says."""
        if seen.choices:
            self._take_choices(seen.choices)
        if seen.error:
            self.error = error_of(seen.error)
        self._take_status(seen.status)
        if seen.response is not None:
            if seen.response.error:
                self.error = error_of(seen.response.error)
            self._take_status(seen.response.status)
            self._take_usage(seen.response.usage)
        if isinstance(seen.message, dict):  # Anthropic's message_start; an error's message is a text
            self._take_start(seen.message.get("usage"))
        if seen.timings is not None and seen.timings.predicted_n is not None:
            self.output_tokens = seen.timings.predicted_n
            self.prompt_tokens = (seen.timings.prompt_n or 0) + (seen.timings.cache_n or 0)
        if seen.tokens_predicted is not None and seen.tokens_evaluated is not None:
            self.prompt_tokens, self.output_tokens = seen.tokens_evaluated, seen.tokens_predicted
        self._take_usage(seen.usage)

    def _take_choices(self, choices: list[_Choice]) -> None:
        for choice in choices:
            self.aborted = self.aborted or choice.finish_reason == "abort"
            text = choice.text
            if isinstance(choice.delta, dict):
                text = text or any(value for name, value in choice.delta.items() if name != "role")
            if text and self._stream:
                self.chunks += 1

    def _take_status(self, status: object) -> None:
        if isinstance(status, str) and status in _BROKEN_OFF:
            self.aborted = True

    def _take_start(self, usage: object) -> None:
        """Take over what is known of the prompt before there is any output."""
        try:
            told = None if usage is None else msgspec.convert(usage, _Usage)
        except msgspec.ValidationError:
            return
        output = self.output_tokens
        self._take_usage(told)
        self.output_tokens = output  # what it says here is no count of an answer that may break off

    def _take_usage(self, usage: _Usage | None) -> None:
        if usage is None:
            return
        prompt = usage.prompt_tokens
        if usage.input_tokens is not None:  # without the cached ones, where those are named beside it
            prompt = usage.input_tokens + (usage.cache_read_input_tokens or 0)
        output = usage.completion_tokens if usage.output_tokens is None else usage.output_tokens
        if prompt is not None:
            self.prompt_tokens = prompt
        if output is not None:
            self.output_tokens = output

    def take_tail(self, tail: bytes) -> None:
        """Take over the usage in the end of an object whose beginning is not there: the last one that has numbers."""
        text = tail.decode("utf-8", "replace")
        for found in reversed(list(_USAGE_KEY.finditer(text))):
            try:
                value, _ = _PLAIN.raw_decode(text, found.end())
                seen = msgspec.convert({found[1]: value}, Event)
            except (ValueError, RecursionError):
                continue
            self.take(seen)
            if self.output_tokens is not None or self.prompt_tokens is not None:
                return
