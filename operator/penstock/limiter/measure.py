"""How large the texts of a prompt are, whatever shape they have.

A prompt is a text, a list of texts, token ids, or messages made of parts; each API nests them in its own way. So the
walk knows no shapes. It adds up every text it meets, counts numbers in lists as tokens, and stops at a part that is a
picture or a sound, because what is inside of it is not read as text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.admission.cost import PromptSize
from penstock.limiter.flat import WIDE, WIDE_ESCAPE, WIDE_ESCAPE_SURPLUS_BYTES

_PICTURES: Final = frozenset(
    {"base64", "image", "image_url", "input_image", "image_pil", "image_embeds", "video", "video_url", "input_video"}
)
"""Types of parts; `base64` is the source of a picture or a document in Anthropic's messages."""

_SOUNDS: Final = frozenset({"audio", "audio_url", "input_audio", "audio_embeds"})
_PICTURE_KEYS: Final = _PICTURES - {"base64"} | {"multimodal_data"}
_NARROW: Final = bytes(range(0xE3))
"""Bytes that begin no wide character: those below U+3000, and those that continue a character."""


class _Size:
    __slots__ = ("audios", "flat", "images", "text_bytes", "token_ids", "wide_characters")

    def __init__(self, *, flat: bool) -> None:
        self.flat = flat
        self.text_bytes = self.wide_characters = self.token_ids = self.images = self.audios = 0


def measure(values: Iterable[object], *, flat: bool = False, written: int = 0, messages: int = 0) -> PromptSize:
    """Return the size of decoded values.

    Args:
        values: What a JSON decoder made of the fields that hold texts.
        flat: Whether their texts were written by `flat`.
        written: Bytes of further text that are known.
        messages: Messages of a chat.
    """
    size = _Size(flat=flat)
    for value in values:
        _add(size, value)
    return PromptSize(
        text_bytes=size.text_bytes + written,
        wide_characters=size.wide_characters,
        token_ids=size.token_ids,
        messages=messages,
        images=size.images,
        audios=size.audios,
    )


def _add(size: _Size, value: object) -> None:
    if isinstance(value, str):
        _add_text(size, value)
    elif isinstance(value, list):
        kinds = set(map(type, value))
        if int in kinds:
            size.token_ids += len(value) if len(kinds) == 1 else sum(type(one) is int for one in value)
            if len(kinds) == 1:
                return
        for one in value:
            _add(size, one)
    elif isinstance(value, dict):
        _add_part(size, value)


def _add_text(size: _Size, text: str) -> None:
    if size.flat:
        escapes = text.count(WIDE_ESCAPE)
        size.text_bytes += len(text) - escapes * WIDE_ESCAPE_SURPLUS_BYTES
        size.wide_characters += text.count(WIDE) + escapes
        return
    if text.isascii():
        size.text_bytes += len(text)
        return
    encoded = text.encode("utf-8", "surrogatepass")
    size.text_bytes += len(encoded)
    size.wide_characters += len(encoded.translate(None, _NARROW))


def _add_part(size: _Size, part: dict[str, object]) -> None:
    kind = part.get("type")
    if isinstance(kind, str):
        if kind in _PICTURES:
            size.images += 1
            return
        if kind in _SOUNDS:
            size.audios += 1
            return
    for key, value in part.items():
        if key == "type":
            continue
        # a part may leave its type out; then the key says what it is
        if kind is None and key in _PICTURE_KEYS:
            size.images += len(value) if isinstance(value, list) else 1
        elif kind is None and key in _SOUNDS:
            size.audios += 1
        else:
            _add(size, value)
