"""One request of the suite, and short ways to write one for each interface."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

COMMON = ("--served-model-name", "tiny", "tiny-alias", "--max-model-len", "512", "--enforce-eager")
PROFILES: dict[str, tuple[str, ...]] = {
    "plain": (*COMMON, "--max-num-seqs", "8"),
    "locked": (*COMMON, "--max-num-seqs", "2", "--api-key", "open-sesame", "second-key"),
    "small": (
        *(*COMMON, "--max-model-len", "160", "--block-size", "32", "--num-gpu-blocks-override", "12"),
        *("--max-num-seqs", "16", "--enable-prompt-tokens-details", "--enable-force-include-usage"),
    ),
    "seats": (*COMMON, "--max-num-seqs", "2"),
    "queue": (*COMMON, "--max-num-seqs", "2", "--max-num-queued-reqs", "4", "--shutdown-timeout", "20"),
    "prefill": (*COMMON, "--max-num-seqs", "1", "--max-num-queued-tokens", "20"),
}
"""Servers by their flags; a server is started once for all its cases and scenes. CPU wants blocks of 32 tokens."""

FORCED = 77  # the token that spells "H"
FORCE: dict[str, Any] = {"logit_bias": {str(FORCED): 100}}
END: dict[str, Any] = {"logit_bias": {"0": 100}}
SEA = "The old harbour smells of salt, and 3 gulls argue about bread."
STRANGE = "Grüße aus Köln: 日本語, עברית, 🙂🙃 — naïve \t\ttabs\n\nand <|user|> specials"
USAGE = {"include_usage": True}
CONTINUOUS = {"include_usage": True, "continuous_usage_stats": True}
LONG = "and then " * 400
SYSTEM = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": SEA}]
TURNS = [*SYSTEM, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And?"}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}]


@dataclass(frozen=True)
class Case:
    """One request.

    Attributes:
        name: Unique, grouped by interface.
        path: With the method POST unless `method` says otherwise.
        body: Sent as JSON; bytes are sent as they are.
        exact: The answer's text is forced, so it is compared too.
    """

    name: str
    path: str
    body: Any = None
    method: str = "POST"
    profile: str = "plain"
    headers: dict[str, str] = field(default_factory=dict)
    exact: bool = False
    content_type: str | None = "application/json"

    def data(self) -> bytes | None:
        """Return the bytes of the body."""
        if self.body is None or isinstance(self.body, bytes):
            return self.body
        return json.dumps(self.body).encode()


def completion(
    name: str, *, exact: bool = False, profile: str = "plain", drop: tuple[str, ...] = (), **fields: Any
) -> Case:
    """Return a completion; `drop` leaves out fields that every other one has."""
    body = {"model": "tiny", "prompt": SEA, "max_tokens": 4, "temperature": 0, **fields}
    return Case(
        f"completions/{name}",
        "/v1/completions",
        {k: v for k, v in body.items() if k not in drop},
        exact=exact,
        profile=profile,
    )


def chat(name: str, *, exact: bool = False, profile: str = "plain", drop: tuple[str, ...] = (), **fields: Any) -> Case:
    """Return a chat completion; see `completion`."""
    messages = [{"role": "user", "content": SEA}]
    body = {"model": "tiny", "messages": messages, "max_tokens": 4, "temperature": 0, **fields}
    return Case(
        f"chat/{name}",
        "/v1/chat/completions",
        {k: v for k, v in body.items() if k not in drop},
        exact=exact,
        profile=profile,
    )


def responses(name: str, *, exact: bool = False, drop: tuple[str, ...] = (), **fields: Any) -> Case:
    """Return a request of the Responses API; see `completion`."""
    body = {"model": "tiny", "input": SEA, "max_output_tokens": 4, "temperature": 0, **fields}
    return Case(f"responses/{name}", "/v1/responses", {k: v for k, v in body.items() if k not in drop}, exact=exact)


def messages(name: str, *, path: str = "/v1/messages", drop: tuple[str, ...] = (), **fields: Any) -> Case:
    """Return a request of the Messages API; see `completion`."""
    messages = [{"role": "user", "content": SEA}]
    body = {"model": "tiny", "messages": messages, "max_tokens": 4, "temperature": 0, **fields}
    return Case(f"messages/{name}", path, {k: v for k, v in body.items() if k not in drop})


def tokenize(name: str, **fields: Any) -> Case:
    """Return a question for tokens."""
    return Case(f"tokenize/{name}", "/tokenize", fields, exact=True)


def detokenize(name: str, **fields: Any) -> Case:
    """Return a question for text."""
    return Case(f"detokenize/{name}", "/detokenize", fields, exact=True)


def get(name: str, path: str, *, method: str = "GET", **fields: Any) -> Case:
    """Return a request without a body."""
    return Case(name, path, method=method, content_type=None, **fields)
