"""The made-up model's tokenizer: exact in both directions, and the same file every time."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.fakevllm import model
from e2e.fakevllm.tokenizer import Tokenizer, TokenizerError

DESCRIPTION = model.tokenizer_description()
TOKENIZER = Tokenizer(DESCRIPTION)


@given(st.text())
def test_text_survives_encoding_and_decoding(text):
    tokens = TOKENIZER.encode(text, special=False)
    assert TOKENIZER.decode(tokens, skip_special=False) == text


@given(st.text(), st.text())
def test_a_text_that_continues_at_a_blank_continues_in_tokens(left, right):
    whole = TOKENIZER.encode(f"{left} {right}", special=False)
    if not right.startswith((" ", "\n")) and right and "<|" not in left + right:
        assert whole == TOKENIZER.encode(left, special=False) + TOKENIZER.encode(f" {right}", special=False)


# As the tokenizers library encodes them with the same file.
@pytest.mark.parametrize(
    ("text", "special", "tokens"),
    [
        ("Hello", True, [1, 77, 683]),
        ("Hello", False, [77, 683]),
        ("The sea", True, [1, 89, 262, 515, 102]),
        ("", True, [1]),
        ("", False, []),
        ("<|user|>Hello<|end|>", False, [3, 77, 683, 0]),
    ],
)
def test_known_encodings(text, special, tokens):
    assert TOKENIZER.encode(text, special=special) == tokens


def test_special_tokens_are_left_out_or_spelled():
    tokens = TOKENIZER.encode("<|user|>Hi<|end|>", special=True)
    assert TOKENIZER.decode(tokens) == "Hi"
    assert TOKENIZER.decode(tokens, skip_special=False) == "<|begin|><|user|>Hi<|end|>"


def test_bytes_that_are_no_letter_become_replacement_characters():
    (first, *_) = TOKENIZER.encode("é", special=False)
    assert TOKENIZER.decode([first]) == "\ufffd"


def test_the_vocabulary_is_full_and_its_ids_are_dense():
    assert TOKENIZER.vocabulary_size == model.VOCABULARY
    assert sorted(DESCRIPTION["model"]["vocab"].values()) == list(range(model.VOCABULARY))


def test_frequent_words_are_one_token():
    assert len(TOKENIZER.encode(" the", special=False)) == 1


@pytest.mark.parametrize("change", [{"pre_tokenizer": None}, {"model": {"type": "WordPiece"}}])
def test_another_kind_of_tokenizer_is_refused(change):
    with pytest.raises(TokenizerError, match="made-up model"):
        Tokenizer({**copy.deepcopy(DESCRIPTION), **change})


def test_a_folder_without_tokenizer_is_named(tmp_path):
    with pytest.raises(TokenizerError, match=r"tokenizer\.json does not exist"):
        Tokenizer.load(tmp_path)


def test_the_model_folder_is_complete_and_the_same_every_time(tmp_path):
    model.write(tmp_path / "a")
    model.write(tmp_path / "b")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert Tokenizer.load(tmp_path / "a").encode("Hello", special=True) == [1, 77, 683]


def test_the_weights_file_describes_itself():
    data = model.weights()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__")
    assert {name: tuple(entry["shape"]) for name, entry in header.items()} == model.weight_shapes()
    assert max(entry["data_offsets"][1] for entry in header.values()) == len(data) - 8 - length


def test_training_needs_enough_text():
    with pytest.raises(ValueError, match="lengthen it"):
        model.train("aaa", 100)
