"""What the interfaces need of the server, and what they give back to it."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from e2e.fakevllm.service import Service
from e2e.fakevllm.wire.rendering import Model


@dataclass(frozen=True, slots=True)
class Host:
    """The server as the interfaces see it."""

    model: Model
    service: Service
    fingerprint: str
    cached_tokens: bool = False
    always_usage: bool = False
    started: int = field(default_factory=lambda: int(time.time()))


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON answer; `varies` is whether it passes the layer that adds the header `vary`."""

    body: Any
    status: int = 200
    varies: bool = True


@dataclass(frozen=True, slots=True)
class Events:
    """A stream of server-sent events, each complete with its empty line."""

    lines: AsyncIterator[str]


Answer = Document | Events


def new_id() -> str:
    """Return sixteen random hex digits, vLLM's kind of id."""
    return secrets.token_hex(8)


def request_id(headers: Mapping[str, str], given: str | None = None) -> str:
    """Return the id a request is known by: its header, else its body's, else a new one."""
    return headers.get("x-request-id") or given or new_id()


def usage(
    prompt: int, completion: int, *, cached: int | None, details: bool, created: int | None = None
) -> dict[str, Any]:
    """Return the `usage` object of a whole answer."""
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached, "created_cache_tokens": created, "multimodal_tokens": None}
        if details
        else None,
        "completion_tokens_details": None,
    }


def final_usage(
    host: Host, prompt: int, completion: int, *, cached: int | None, created: bool = False
) -> dict[str, Any]:
    """Return the `usage` object of a stream's last event; only chat completions name the tokens newly cached."""
    total: dict[str, Any] = short_usage(prompt, completion)
    if host.cached_tokens:
        total["prompt_tokens_details"] = {
            "cached_tokens": cached or 0,
            **({"created_cache_tokens": 0} if created else {}),
        }
    return total


def short_usage(prompt: int, completion: int) -> dict[str, int]:
    """Return the `usage` object of a stream's event."""
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
