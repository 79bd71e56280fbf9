"""Tokens to text, piece by piece, and the stop strings that end it.

A piece ends with a whole character: bytes of an unfinished one wait for the next token. While stop strings are
given, as many characters are held back as a stop string could still need, so that none of it is ever sent.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from e2e.fakevllm.tokenizer import Tokenizer


class Detokenizer:
    """The text of one answer as it grows.

    Args:
        tokenizer: The vocabulary.
        stop: Strings that end the answer.
        include_stop: Whether the stop string stays in the text.
        skip_special: Whether special tokens are left out.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, stop: Sequence[str] = (), include_stop: bool = False, skip_special: bool = True
    ) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._include_stop = include_stop
        self._skip = frozenset(tokenizer.special.values()) if skip_special else frozenset[int]()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = 0 if include_stop or not stop else max(len(text) for text in stop) - 1
        self._sent = 0
        self.text = ""
        self.stopped_by: str | None = None

    def add(self, token: int, *, text: bool = True) -> None:
        """Take one token; afterwards `stopped_by` names the stop string that now ends the text, if any.

        Args:
            token: The token.
            text: False for a token that ends the answer and is not part of its text.
        """
        if not text or token in self._skip:
            return
        before = len(self.text)
        self.text += self._decoder.decode(self._tokenizer.token_bytes(token))
        found = [(at, stop) for stop in self._stop if (at := self.text.find(stop, max(0, before - len(stop) + 1))) >= 0]
        if found:
            at, stop = min(found)
            self.stopped_by = stop
            self.text = self.text[: at + len(stop) if self._include_stop else at]

    def take(self, *, final: bool) -> str:
        """Return the text that may be sent and has not been; everything when `final`."""
        if final and self.stopped_by is None:
            self.text += self._decoder.decode(b"", final=True)
        end = len(self.text) if final else max(self._sent, len(self.text) - self._held)
        piece = self.text[self._sent : end]
        self._sent = end
        return piece
