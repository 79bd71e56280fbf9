"""Sizes of prompts in every shape that APIs give them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admission.cost import PromptSize
from penstock.limiter.measure import measure

BASE64 = "iVBORw0KGgo" * 1000


@pytest.mark.parametrize(
    ("value", "size"),
    [
        pytest.param("hello", PromptSize(text_bytes=5), id="a text"),
        pytest.param("é", PromptSize(text_bytes=2), id="UTF-8 bytes count"),
        pytest.param("漢字かな한국", PromptSize(text_bytes=18, wide_characters=6), id="wide characters"),
        pytest.param("दे", PromptSize(text_bytes=6), id="three bytes and not wide"),
        pytest.param(["ab", "c"], PromptSize(text_bytes=3), id="a list of texts"),
        pytest.param([1, 2, 3], PromptSize(token_ids=3), id="token ids"),
        pytest.param([[1, 2], [3]], PromptSize(token_ids=3), id="lists of token ids"),
        pytest.param([1, "ab", 2], PromptSize(text_bytes=2, token_ids=2), id="token ids and texts"),
        pytest.param([{"role": "user", "content": "abc"}], PromptSize(text_bytes=7), id="a message with its role"),
        pytest.param([{"type": "text", "text": "abc"}], PromptSize(text_bytes=3), id="a part"),
        pytest.param(
            [{"type": "text", "text": "ab"}, {"type": "image_url", "image_url": {"url": BASE64}}],
            PromptSize(text_bytes=2, images=1),
            id="a picture",
        ),
        pytest.param(
            [{"type": "image", "source": {"type": "base64", "data": BASE64}}],
            PromptSize(images=1),
            id="anthropic picture",
        ),
        pytest.param(
            [{"type": "document", "source": {"type": "base64", "data": BASE64}}], PromptSize(images=1), id="a PDF"
        ),
        pytest.param(
            [{"type": "document", "source": {"type": "text", "data": "abc"}}], PromptSize(text_bytes=3), id="a document"
        ),
        pytest.param(
            [{"type": "tool_result", "content": [{"type": "text", "text": "abc"}]}],
            PromptSize(text_bytes=3),
            id="a tool's result",
        ),
        pytest.param(
            [{"type": "input_audio", "input_audio": {"data": BASE64}}], PromptSize(audios=1), id="a recording"
        ),
        pytest.param([{"image_url": BASE64}], PromptSize(images=1), id="a picture without its type"),
        pytest.param([{"audio_url": BASE64}], PromptSize(audios=1), id="a recording without its type"),
        pytest.param(
            {"prompt_string": "abc", "multimodal_data": [BASE64, BASE64]},
            PromptSize(text_bytes=3, images=2),
            id="llama.cpp's own",
        ),
        pytest.param([{"type": ["image"], "text": "abc"}], PromptSize(text_bytes=3), id="a type that is none"),
        pytest.param(
            [{"type": "text", "text": "abc", "image_url": BASE64}],
            PromptSize(text_bytes=3 + len(BASE64)),
            id="what calls itself a text is a text",
        ),
        pytest.param([None, True, 1.5, {}, []], PromptSize(), id="nothing to read"),
    ],
)
def test_only_what_the_model_reads_counts(value: object, size: PromptSize) -> None:
    assert measure([value]) == size


def test_sizes_of_several_fields_add_up() -> None:
    assert measure(["ab", ["c", [7]]], written=10, messages=2) == PromptSize(text_bytes=13, token_ids=1, messages=2)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["type", "text", "content", "image"]), inner),
)


@given(JSON)
def test_any_json_can_be_measured(value: object) -> None:
    size = measure([value])
    assert size.text_bytes >= 3 * size.wide_characters
    assert min(size.token_ids, size.images, size.audios) >= 0
