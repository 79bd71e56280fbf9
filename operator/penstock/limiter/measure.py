"""How large the texts of a prompt are, whatever shape they have.

A prompt is a text, a list of texts, token ids, or messages made of parts; each API nests them in its own way. So the
walk knows no shapes. It adds up every text it meets, counts numbers in lists as tokens, and stops at a part that is a
picture or a sound, because what is inside of it is not read as text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from penstock.admission.cost import PromptSize
from penstock.limiter.flat import WIDE, WIDE_ESCAPE, WIDE_ESCAPE_SURPLUS_BYTES

_PICTURES: Final = frozenset(
    {"base64", "image", "image_url", "input_image", "image_pil", "image_embeds", "video", "video_url", "input_video"}
)
"""Types of parts; `base64` is the source of a picture or a document in Anthropic's messages."""

_SOUNDS: Final = frozenset({"audio", "audio_url", "input_audio", "audio_embeds"})
_PICTURE_KEYS: Final = _PICTURES - {"base64"} | {"multimodal_data"}
_KEYS: Final = _PICTURE_KEYS | _SOUNDS | {"type"}
"""An object without one of these is nothing but texts."""
_NUMBERS: Final = {int}
_NARROW: Final = bytes(range(0xE3))
"""Bytes that begin no wide character: those below U+3000, and those that continue a character."""


class _Size(msgspec.Struct):
    text_bytes: int = 0
    wide_characters: int = 0
    token_ids: int = 0
    images: int = 0
    audios: int = 0


def measure(values: Iterable[object], *, flat: bool = False, written: int = 0, messages: int = 0) -> PromptSize:
    """Return the size of decoded values.

    Args:
        values: What a JSON decoder made of the fields that hold texts.
        flat: Whether their texts were written by `flat`.
        written: Bytes of further text that are known.
        messages: Messages of a chat.
    """
    size = _Size()
    walks = [iter(values)]  # from the outermost list or object to the innermost
    while walks:
        for value in walks[-1]:
            if isinstance(value, str):
                if value.isascii() and not flat:
                    size.text_bytes += len(value)
                else:
                    _add_text(size, value, flat=flat)
            elif isinstance(value, list):
                kinds = set(map(type, value))
                if int in kinds:
                    size.token_ids += sum(type(one) is int for one in value) if len(kinds) > 1 else len(value)
                if kinds != _NUMBERS:
                    walks.append(iter(value))
                    break
            elif isinstance(value, dict):
                walks.append(iter(value.values() if _KEYS.isdisjoint(value) else _texts(size, value)))
                break
        else:
            walks.pop()
    return PromptSize(
        text_bytes=size.text_bytes + written,
        wide_characters=size.wide_characters,
        token_ids=size.token_ids,
        messages=messages,
        images=size.images,
        audios=size.audios,
    )


def _add_text(size: _Size, text: str, *, flat: bool) -> None:
    if flat:
        escapes = text.count(WIDE_ESCAPE)
        size.text_bytes += len(text) - escapes * WIDE_ESCAPE_SURPLUS_BYTES
        size.wide_characters += text.count(WIDE) + escapes
        return
    encoded = text.encode("utf-8", "surrogatepass")
    size.text_bytes += len(encoded)
    size.wide_characters += len(encoded.translate(None, _NARROW))


def _texts(size: _Size, part: dict[str, object]) -> Iterable[object]:
    """Return what is to be read of an object; a picture or a sound is counted instead."""
    kind = part.get("type")
    if kind is None:
        return _texts_by_key(size, part)
    if isinstance(kind, str):
        if kind in _PICTURES:
            size.images += 1
            return ()
        if kind in _SOUNDS:
            size.audios += 1
            return ()
    return [value for key, value in part.items() if key != "type"]


def _texts_by_key(size: _Size, part: dict[str, object]) -> Iterable[object]:
    """Return what is to be read of a part that leaves its type out: then the key says what it is."""
    texts = []
    for key, value in part.items():
        if key in _PICTURE_KEYS:
            size.images += len(value) if isinstance(value, list) else 1
        elif key in _SOUNDS:
            size.audios += 1
        else:
            texts.append(value)
    return texts
