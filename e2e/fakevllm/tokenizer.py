"""Byte-level BPE, read from a model folder's `tokenizer.json`, so that token counts equal those of the real engine.

The file may use only what the made-up model uses: special tokens that are cut out of the text first, a split in front
of every blank and line break, byte-level letters, merges by rank, and one begin token put in front when the caller
asks for special tokens. Anything else in the file is refused by name rather than read wrongly.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

WORDS = re.compile(r"[ \n]?[^ \n]+|[ \n]")
PRE_TOKENIZER = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "[ \\n]"}, "behavior": "MergedWithNext", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    ],
}


class TokenizerError(ValueError):
    """The model folder holds no tokenizer that this module can read."""


def byte_letters() -> list[str]:
    """Return the printable letter that stands for each of the 256 bytes in a byte-level vocabulary."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in shown}
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(256 + len(letters) - len(shown))
    return [letters[byte] for byte in range(256)]


class Tokenizer:
    """Text to token ids and back."""

    def __init__(self, description: dict[str, Any]) -> None:
        """Take the parsed contents of `tokenizer.json`.

        Raises:
            TokenizerError: It uses something this module does not know.
        """
        model = description["model"]
        if model["type"] != "BPE" or description["pre_tokenizer"] != PRE_TOKENIZER:
            raise TokenizerError(
                "tokenizer.json is not the byte-level BPE of the made-up model; write one with e2e.fakevllm.model"
            )
        letters = byte_letters()
        self._letter_of = letters
        self._byte_of = {letter: byte for byte, letter in enumerate(letters)}
        self._ids: dict[str, int] = model["vocab"]
        self.special: dict[str, int] = {token["content"]: token["id"] for token in description["added_tokens"]}
        self._tokens: dict[int, str] = {number: token for token, number in self._ids.items()}
        self._tokens.update({number: token for token, number in self.special.items()})
        self._ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
        self._special_pattern = re.compile("(" + "|".join(re.escape(token) for token in self.special) + ")")
        first = description["post_processor"]["single"][0]
        self._begin = [self.special[first["SpecialToken"]["id"]]]
        self._word = lru_cache(maxsize=65_536)(self._encode_word)

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Read `folder/tokenizer.json`.

        Raises:
            TokenizerError: The file is missing or of another kind.
        """
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise TokenizerError(f"{path} does not exist; write a model folder with python -m e2e.fakevllm.model")
        return cls(json.loads(path.read_text()))

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids, special ones included."""
        return len(self._tokens)

    @property
    def longest_token(self) -> int:
        """Letters of the longest token, which bounds how much text can fit in a context."""
        return max(len(token) for token in self._tokens.values())

    def token(self, number: int) -> str:
        """Return the vocabulary's spelling of a token id."""
        return self._tokens[number]

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Return the token ids of a text.

        Args:
            text: Any text; lone surrogates are an error of the caller.
            special: Put the begin token in front.
        """
        numbers = list(self._begin) if special else []
        for piece in self._special_pattern.split(text):
            if piece in self.special:
                numbers.append(self.special[piece])
                continue
            for word in WORDS.findall(piece):
                numbers.extend(self._word(word))
        return numbers

    def _encode_word(self, word: str) -> tuple[int, ...]:
        parts = [self._letter_of[byte] for byte in word.encode()]
        while len(parts) > 1:
            ranked = [(self._ranks.get((left, right)), at) for at, (left, right) in enumerate(pairwise(parts))]
            known = [(rank, at) for rank, at in ranked if rank is not None]
            if not known:
                break
            _, at = min(known)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return tuple(self._ids[part] for part in parts)

    def token_bytes(self, number: int) -> bytes:
        """Return the bytes one token id stands for; a special token stands for its name."""
        token = self._tokens.get(number, "")
        if token in self.special:
            return token.encode()
        return bytes(self._byte_of[letter] for letter in token)

    def decode(self, numbers: list[int], *, skip_special: bool = True) -> str:
        """Return the text of token ids; bytes that are no UTF-8 become U+FFFD."""
        special = set(self.special.values()) if skip_special else set()
        return b"".join(self.token_bytes(number) for number in numbers if number not in special).decode(
            errors="replace"
        )
