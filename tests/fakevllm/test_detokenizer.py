"""Text piece by piece: whole letters only, nothing of a stop string."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.fakevllm import model
from e2e.fakevllm.detokenizer import Detokenizer
from e2e.fakevllm.tokenizer import Tokenizer

TOKENIZER = Tokenizer(model.tokenizer_description())


def feed(text: str, **options) -> tuple[list[str], Detokenizer]:
    detokenizer = Detokenizer(TOKENIZER, **options)
    pieces = []
    for token in TOKENIZER.encode(text, special=False):
        detokenizer.add(token)
        final = detokenizer.stopped_by is not None
        pieces.append(detokenizer.take(final=final))
        if final:
            return pieces, detokenizer
    pieces.append(detokenizer.take(final=True))
    return pieces, detokenizer


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="<")))
def test_pieces_put_together_are_the_text(text):
    pieces, _ = feed(text)
    assert "".join(pieces) == text


def test_a_letter_of_several_bytes_is_sent_whole():
    pieces, _ = feed("é漢🙂")
    assert [piece for piece in pieces if piece] == ["é", "漢", "🙂"]


@pytest.mark.parametrize(
    ("text", "options", "expected", "stopped_by"),
    [
        ("one two three", {"stop": ["two"]}, "one ", "two"),
        ("one two three", {"stop": ["two"], "include_stop": True}, "one two", "two"),
        ("one two three", {"stop": ["four"]}, "one two three", None),
        ("one two three", {"stop": ["e t", "two"]}, "on", "e t"),
        ("abcabd", {"stop": ["abd"]}, "abc", "abd"),
        ("a<|user|>b", {}, "ab", None),
        ("a<|user|>b", {"skip_special": False}, "a<|user|>b", None),
    ],
)
def test_stop_strings_and_special_tokens(text, options, expected, stopped_by):
    pieces, detokenizer = feed(text, **options)
    assert "".join(pieces) == expected
    assert detokenizer.stopped_by == stopped_by


@given(st.text("abc ", max_size=40), st.text("abc", min_size=1, max_size=4))
def test_nothing_behind_the_beginning_of_a_stop_string_is_ever_sent(text, stop):
    pieces, detokenizer = feed(text, stop=[stop])
    assert "".join(pieces) == text.split(stop, 1)[0]
    assert (detokenizer.stopped_by is not None) == (stop in text)


def test_a_token_that_ends_the_answer_is_no_part_of_its_text():
    detokenizer = Detokenizer(TOKENIZER)
    detokenizer.add(77, text=False)
    assert detokenizer.take(final=True) == ""
