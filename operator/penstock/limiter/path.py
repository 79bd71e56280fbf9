"""Paths: one canonical spelling, checked against the engine's allow-list, and sent on as checked.

A path is decoded once: unreserved characters and encoded slashes are decoded, empty, `.` and `..` segments are
resolved. The allow-list holds plain paths, so anything still encoded after that can only be unknown. Because the
canonical path is what the engine gets, engine and limiter cannot disagree about which path was meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.engines.facts import RequestClass
from penstock.limiter.refusal import Dialect, Reason, Refused, dialect_of

_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})?")
_METHODS = {
    RequestClass.GENERATION: ("POST", "OPTIONS"),
    RequestClass.READ: ("GET", "HEAD", "OPTIONS"),
}
_DECODED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/")


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes.

    Attributes:
        path: Canonical path.
        target: Path and query to send to the engine.
        request_class: How it is treated.
        dialect: Whose error shape its client expects.
    """

    path: str
    target: bytes
    request_class: RequestClass
    dialect: Dialect


def normalise(path: bytes) -> str:
    """Return the canonical spelling of a path that begins with a slash.

    Raises:
        Refused: a percent sign without two hex digits.
    """
    decoded = _ESCAPE.sub(_decode, path)
    segments: list[bytes] = []
    parts = decoded.split(b"/")
    for part in parts:
        if part == b"..":
            del segments[-1:]
        elif part not in {b"", b"."}:
            segments.append(part)
    canonical = b"/" + b"/".join(segments)
    if segments and parts[-1] in {b"", b".", b".."}:
        canonical += b"/"
    return canonical.decode("ascii")


def route(target: bytes, method: bytes, allowed: Mapping[str, RequestClass]) -> Route:
    """Find where a request target goes.

    Raises:
        Refused: 404 for a path outside the allow-list, 405 for a method the path does not have.
    """
    raw_path, mark, query = target.partition(b"?")
    path = normalise(raw_path)
    dialect = dialect_of(path)
    request_class = allowed.get(path)
    if request_class is None:
        raise Refused(Reason.UNKNOWN_PATH, f"There is no {path[:200]} here. Ask /v1/models for what is served.")
    methods = _METHODS[request_class]
    if method.decode() not in methods:
        raise Refused(Reason.METHOD_NOT_ALLOWED, f"{path} takes {', '.join(methods)}.", allow=methods)
    if method == b"OPTIONS":
        request_class = RequestClass.READ
    return Route(path, path.encode() + mark + query, request_class, dialect)


class Router:
    """`route` for one allow-list, with the answer for every path as it is usually written at hand."""

    def __init__(self, allowed: Mapping[str, RequestClass]) -> None:
        self._allowed = allowed
        self._plain = {
            (path.encode(), method.encode()): route(path.encode(), method.encode(), allowed)
            for path, request_class in allowed.items()
            for method in _METHODS[request_class]
        }

    def route(self, target: bytes, method: bytes) -> Route:
        """Find where a request target goes; see the function `route`."""
        return self._plain.get((target, method)) or route(target, method, self._allowed)


def _decode(match: re.Match[bytes]) -> bytes:
    digits = match[1]
    if digits is None:
        raise Refused(Reason.BAD_REQUEST, "The path has a percent sign without two hex digits.")
    byte = int(digits, 16)
    return bytes((byte,)) if byte in _DECODED else b"%" + digits.upper()
