"""Hashes of JSON documents, in which the order of keys means nothing."""

from __future__ import annotations

import hashlib

import msgspec

FULL_DIGITS = 64


def digest(document: object, digits: int = FULL_DIGITS) -> str:
    """Return the first hexadecimal digits of the SHA-256 of a JSON document."""
    return hashlib.sha256(msgspec.json.encode(document, order="deterministic")).hexdigest()[:digits]
