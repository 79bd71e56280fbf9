"""Asking the engine for usage on a client's behalf: one field of the body is added or changed, nothing else."""

from __future__ import annotations

import re
from typing import Any

import msgspec


class _Options(msgspec.Struct):
    stream_options: dict[str, Any] | None = None


_OPTIONS = msgspec.json.Decoder(_Options)

_ESCAPE = b"\\u"
_INCLUDE_USAGE = "include_usage"
_USAGE_FIELD = b',"stream_options":{"include_usage":true}'
_OPTIONS_KEY = re.compile(rb'"stream_options"[ \t\n\r]*:[ \t\n\r]*(?=[{n])')
_BRACE_OR_STRING = re.compile(rb'[{}]|"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def with_usage(body: bytes) -> bytes:
    """Return a body that also asks for usage at the end of the stream; all other bytes stay as they are.

    Args:
        body: A body that `read_wish` accepted, of a request that may have it (`Wish.can_add_usage`).
    """
    named = b'"stream_options"' in body
    if not named and _ESCAPE not in body:  # nor can it be named by escapes
        return _appended(body, _USAGE_FIELD)
    options = _OPTIONS.decode(body).stream_options
    if options is None and not named:
        return _appended(body, _USAGE_FIELD)
    options = dict(options or {})
    if options.get(_INCLUDE_USAGE) is True:
        return body
    # with usage at the end only: the client did not ask for it in each event
    wanted = options | {_INCLUDE_USAGE: True}
    if "continuous_usage_stats" in wanted:
        wanted["continuous_usage_stats"] = False
    text = msgspec.json.encode(wanted)
    place = _OPTIONS_KEY.search(body)
    if place is not None:
        begin = place.end()
        end = _value_end(body, begin)
        replaced = body[:begin] + text + body[end:]
        if _OPTIONS.decode(replaced).stream_options == wanted:
            return replaced
    # written in a way that does not show where it is; of two that are alike the last one counts
    return _appended(body, b',"stream_options":' + text)


def _appended(body: bytes, field: bytes) -> bytes:
    """Return an object with one more field at its end."""
    end = body.rindex(b"}")
    if body[:end].rstrip(b" \t\n\r").endswith(b"{"):
        field = field.removeprefix(b",")
    return body[:end] + field + body[end:]


def _value_end(body: bytes, begin: int) -> int:
    """Return where an object or `null` ends that begins at an index."""
    if body[begin : begin + 1] == b"n":
        return begin + len(b"null")
    depth = 0
    for found in _BRACE_OR_STRING.finditer(body, begin):
        if found[0] == b"{":
            depth += 1
        elif found[0] == b"}":
            depth -= 1
            if depth == 0:
                return found.end()
    return begin
