r"""The values of a large body, written so that reading them takes as many bytes as they have.

Theory of operation. Python keeps a text in one, two or four bytes a character, by its widest one: a single emoji in
30 MiB makes 120 MiB of them, and whoever decodes JSON does so for every text at once. Admission only wants to know how
long the texts are and how many of their characters are wide. So a large body in which such characters may be is first
written anew, in ASCII: a character of several bytes becomes as many signs, and escapes are resolved to signs too. Its
structure stays, and so does every word that the walk through it knows (`measure`), because none of them has a sign.

| in a text | here |
|---|---|
| first byte of a wide character (from U+3000 on) | `WIDE` |
| `\u3000` to `\uffff`, and each half of a pair | `WIDE_ESCAPE` and its four digits; counted as three bytes |
| `\u0000` to `\u2fff` | four signs, where it means one to three bytes |
| `\\` and `\"`, any other byte beyond ASCII, and a sign of ours | one sign |
| any other escape | a sign and its letter |

It is done by the slice, so it takes little memory itself, and at the speed of bytes.replace.
"""

from __future__ import annotations

import codecs
from typing import Final

from penstock.limiter.structure import SLICE_BYTES, slices

WIDE: Final = "\x7f"
WIDE_ESCAPE: Final = "`"
WIDE_ESCAPE_SURPLUS_BYTES: Final = 2
"""Five characters stand for three bytes."""

_WIDE_FROM: Final = 0xE3
_OTHER: Final = b"~"
_SIGNS: Final = bytes(
    ord(WIDE) if byte >= _WIDE_FROM else ord(_OTHER) if byte >= 0x80 or byte in b"\x7f`" else byte
    for byte in range(256)
)
_NARROW_ESCAPES: Final = (b"\\u0", b"\\u1", b"\\u2")


def check_utf8(body: bytes) -> None:
    """Read a body as UTF-8 and keep nothing of it.

    Raises:
        UnicodeDecodeError: it is none.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    view = memoryview(body)
    for begin in range(0, len(body), SLICE_BYTES):
        decoder.decode(view[begin : begin + SLICE_BYTES])
    decoder.decode(b"", final=True)


def is_narrow(body: bytes) -> bool:
    """Return whether the texts of a body take one byte a character as they are."""
    return body.isascii() and b"\\u" not in body


def write_flat(out: bytearray, value: memoryview) -> None:
    """Append a JSON value that is known to be valid, as the module's docstring has it."""
    for piece in slices(value):
        out += _flat(piece)


def _flat(piece: bytes) -> bytes:
    piece = piece.translate(_SIGNS)
    if b"\\" not in piece:
        return piece
    # what two backslashes mean is one; after this, each that is left begins another escape
    piece = piece.replace(b"\\\\", _OTHER).replace(b'\\"', _OTHER)
    if b"\\u" in piece:
        for escape in _NARROW_ESCAPES:
            piece = piece.replace(escape, _OTHER)
        piece = piece.replace(b"\\u", WIDE_ESCAPE.encode())
    return piece.replace(b"\\", _OTHER)
