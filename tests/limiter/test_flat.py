"""Large bodies: read in as much memory as they have bytes, and read as small ones are."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.limiter import body as module
from penstock.limiter import structure
from penstock.limiter.body import LARGE_BYTES, read_wish
from penstock.limiter.flat import check_utf8, write_flat
from penstock.limiter.refusal import Refused

CHAT = "/v1/chat/completions"
EMOJI = "\U0001f6b0"
MOST_TIMES_ITS_BYTES = 2.5

TEXTS = st.text(st.sampled_from("a~`\x7f\u00e9\u0935\u6c34\uffff" + EMOJI), max_size=40)
ESCAPED = st.text(st.sampled_from('a"\\\n\t/\x00\u00e9\u6c34' + EMOJI), max_size=40)


def values(texts: st.SearchStrategy[str]) -> st.SearchStrategy[object]:
    keys = st.sampled_from(["type", "text", "image_url", "audio", "ype", "x"])
    kinds = st.sampled_from(["text", "image_url", "input_audio", "base64", "ase64"])
    return st.recursive(
        texts | kinds | st.integers(0, 9) | st.none(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(structure, "SLICE_BYTES", 7)
    return monkeypatch


def both_ways(monkeypatch: pytest.MonkeyPatch, raw: bytes):
    """Return what is read of a body as a small one, and as a large one."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "LARGE_BYTES", len(raw))
        small = read_wish(CHAT, raw)
        patch.setattr(module, "LARGE_BYTES", -1)
        return small, read_wish(CHAT, raw)


@given(value=values(TEXTS))
def test_without_escapes_a_large_body_is_read_exactly_as_a_small_one(value: object) -> None:
    raw = json.dumps({"model": EMOJI, "stream": True, "messages": value, "tools": [EMOJI]}, ensure_ascii=False).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structure, "SLICE_BYTES", 7)
        small, large = both_ways(patch, raw.replace(b"\\u007f", b"\x7f"))
    assert small == large


@given(value=values(ESCAPED), ascii_only=st.booleans())
def test_with_escapes_no_text_is_missed_and_no_word_is_made_up(value: object, ascii_only: bool) -> None:
    raw = json.dumps({"messages": value, "prompt": EMOJI}, ensure_ascii=ascii_only).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structure, "SLICE_BYTES", 7)
        small, large = both_ways(patch, raw)
    assert small.prompt.text_bytes <= large.prompt.text_bytes <= len(raw)
    assert small.prompt.wide_characters <= large.prompt.wide_characters <= 2 * small.prompt.wide_characters
    for name in ("token_ids", "messages", "images", "audios"):
        assert getattr(small.prompt, name) == getattr(large.prompt, name)


@pytest.mark.parametrize("escape", ["\\base64", "\\u0062ase64", "b\\u0061se64"])
def test_an_escape_makes_no_picture_of_a_text(small_is_large, escape: str) -> None:
    raw = f'{{"messages": [{{"type": "{escape}", "text": "hello"}}], "prompt": "{EMOJI}"}}'.encode()
    _, large = both_ways(small_is_large, raw)
    assert (large.prompt.images, large.prompt.text_bytes > 5) == (0, True)


def test_an_escaped_key_means_what_it_says(small_is_large) -> None:
    raw = f'{{"\\u006dodel": "\\u0062ench", "mess\\u0061ges": ["{EMOJI}"], "prompt": null}}'.encode()
    small, large = both_ways(small_is_large, raw)
    assert (small, large.model, large.prompt.wide_characters) == (large, "bench", 1)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("x" * (8 * LARGE_BYTES) + EMOJI, id="one wide character"),
        pytest.param(EMOJI * (2 * LARGE_BYTES), id="only wide characters"),
        pytest.param("\\u6c34" + "x" * (8 * LARGE_BYTES), id="one escape"),
        pytest.param("\\ud83d\\udeb0" * (LARGE_BYTES // 2), id="only escapes"),
        pytest.param("\\n" * (4 * LARGE_BYTES) + EMOJI, id="only line ends"),
        pytest.param("\\\\" * (4 * LARGE_BYTES) + EMOJI, id="only backslashes"),
    ],
)
@pytest.mark.parametrize("where", ['{"messages": [{"role": "user", "content": "%s"}]}', '{"ignored": "%s"}'])
def test_a_large_body_takes_memory_as_it_has_bytes(where: str, text: str) -> None:
    raw = (where % text).encode()
    del text
    tracemalloc.start()
    try:
        read_wish(CHAT, raw)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= MOST_TIMES_ITS_BYTES * len(raw)


@pytest.mark.parametrize("field", ["model", "stream_options"])
def test_a_short_field_that_is_long_is_refused_before_it_is_read(field: str) -> None:
    value = f'"{EMOJI * LARGE_BYTES}"' if field == "model" else f'{{"x": "{EMOJI * LARGE_BYTES}"}}'
    raw = f'{{"{field}": {value}}}'.encode()
    with pytest.raises(Refused, match=f"`{field}` is longer"):
        read_wish(CHAT, raw)


@pytest.mark.parametrize("size", [1, structure.SLICE_BYTES - 1, structure.SLICE_BYTES, 2 * structure.SLICE_BYTES])
def test_bytes_that_are_no_utf8_are_found_wherever_they_are(size: int) -> None:
    check_utf8(b"x" * size + EMOJI.encode() + b"x")
    with pytest.raises(UnicodeDecodeError):
        check_utf8(b"x" * size + EMOJI.encode()[:3])
    with pytest.raises(UnicodeDecodeError):
        check_utf8(b"x" * size + b"\xed\xa0\x80")


def test_very_many_quotes_are_looked_at_by_the_slice() -> None:
    raw = b"[" * 129 + b'"' * (8 * LARGE_BYTES)
    tracemalloc.start()
    try:
        with pytest.raises(Refused):
            read_wish(CHAT, raw)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= MOST_TIMES_ITS_BYTES * len(raw)


def test_what_is_written_flat_is_ascii_without_escapes() -> None:
    out = bytearray()
    write_flat(out, memoryview(('"\\\\ \\" \\n \\u6c34 \\u00e9 ' + EMOJI + '\u00e9"').encode()))
    assert out == b'"~ ~ ~n `6c34 ~0e9 \x7f~~~~~"'
