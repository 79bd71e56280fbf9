"""One request as it goes over the wire: its texts, and the body that asks a guard before it is written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec
from aiohttp.abc import AbstractStreamWriter

from penstock.kube.kinds import Kind
from penstock.resources.objects import Object

JSON = "application/json"
APPLY_PATCH = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"

Guard = Callable[[], None]
"""Called right before a write is sent; raises `NotLeading` to stop it."""


def unguarded() -> None:
    """Let every write pass: there is nobody to be fenced off from."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request; `verb` and `target` are for messages and metrics, the rest goes over the wire."""

    verb: str
    kind: Kind | None
    target: str
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON

    def __str__(self) -> str:
        return f"{self.verb} {self.kind} {self.target}" if self.kind else f"{self.verb} {self.target}"


class Fenced(aiohttp.BytesPayload):
    """A request's body that asks a guard at the last moment: the connection is there, the next step is the socket."""

    def __init__(self, content: bytes, *, content_type: str, guard: Guard) -> None:
        super().__init__(content, content_type=content_type)
        self._guard = guard

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Ask, then write; what the guard raises ends the request before a byte of it was sent."""
        self._guard()
        await super().write_with_length(writer, content_length)


_ESCAPE = re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|\\.")


def to_json(document: object) -> bytes:
    """Return a JSON document as it goes over the wire."""
    return msgspec.json.encode(document)


def to_yaml(obj: Object) -> bytes:
    """Return JSON that is YAML too, as an apply is read.

    In ASCII the two differ by DEL alone. Outside of it YAML knows more line ends and fewer characters, so all of it is
    escaped; JSON's surrogate pairs would not do.
    """
    fast = to_json(obj)
    if fast.isascii() and b"\x7f" not in fast:
        return fast

    def escape(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        point = 0x10000 + ((int(match[1], 16) - 0xD800) << 10) + int(match[2], 16) - 0xDC00
        return f"\\U{point:08x}"

    return _ESCAPE.sub(escape, json.dumps(obj)).replace("\x7f", "\\u007f").encode()


def parse(content: bytes) -> Object | None:
    """Return the JSON object that an answer holds, or None when it holds none."""
    try:
        document: Any = msgspec.json.decode(content)
    except (ValueError, RecursionError, msgspec.DecodeError):
        return None
    return document if isinstance(document, dict) else None
