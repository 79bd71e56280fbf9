"""Inputs that are nearly right: valid bytes, damaged by chance in the ways that parsers are bad at."""

from __future__ import annotations

import random
from collections.abc import Sequence

TOKENS: Sequence[bytes] = (
    b"\r\n", b"\n", b"\r", b"\x00", b" ", b"\t", b"\x0b", b"\x7f", b"\xff", b":", b";", b",", b"\r\n\r\n",
    b"\n\n", b"\r\n ",
    b"Content-Length: 3\r\n", b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n", b"Expect: 100-continue\r\n", b"HTTP/1.0", b"HTTP/1.1 100 Continue\r\n\r\n", b"0\r\n\r\n",
    b"FFFFFFFF\r\n", b"-1", b"+1", b"0x", b"%2f", b"%00", b"..", b"//", b"\\u0000", b"\\ud800", b"NaN", b"1e999", b"-0",
    b"[" * 200, b"{" * 200, b'"', b"\\", b"null", b"true", b"[]", b"{}", b"data: ", b"data:", b"event: error\n",
    b"[DONE]", b'"choices":[]', b'"choices": [ {', b'"usage":{"prompt_tokens":1}', b'"finish_reason":null', b": \n\n",
    b"\xef\xbb\xbf", b"\xc3", b"\xe6\xb0\xb4", b'"stream_options":null', b'"stream":true',
)  # fmt: skip
MOST_CHANGES = 6
MOST_CUTS = 12


def mutated(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return data with a few changes; sometimes with none."""
    for _ in range(chance.randrange(MOST_CHANGES)):
        place = chance.randrange(len(data) + 1)
        end = min(len(data), place + chance.choice((0, 1, 2, 8, 64)))
        match chance.randrange(7):
            case 0:
                data = data[:place] + bytes((chance.randrange(256),)) + data[place + 1 :]
            case 1:
                data = data[:place] + data[end:]
            case 2:
                data = data[:place] + chance.choice(TOKENS) + data[place:]
            case 3:
                data = data[:place] + chance.choice(TOKENS) + data[end:]
            case 4:
                data = data[:end] + data[place:]
            case 5:
                other = chance.choice(others)
                data = data[:place] + other[chance.randrange(len(other) + 1) :]
            case 6:
                data = data[:place] + chance.randbytes(chance.randrange(9)) + data[place:]
    return data


def pieces(chance: random.Random, data: bytes) -> list[bytes]:
    """Return data cut at a few places, or at every byte."""
    if len(data) < 400 and chance.random() < 0.1:
        return [data[index : index + 1] for index in range(len(data))]
    places = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(MOST_CUTS)))
    ends = [*places, len(data)]
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False) if begin != end]
