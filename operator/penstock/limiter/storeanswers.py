r"""Answers of the shared store, within bounds: a store in the wrong hands must not stop the streams.

hiredis takes what an answer says of itself at its word: a list is made as long as it is announced, which for some
billion entries takes gigabytes and seconds, and a text is gathered for as long as it comes. What the scripts answer is
small, so both are refused before hiredis sees them. A list is announced by a line, `*3\r\n`; no text that is expected
has a line like it.
"""

from __future__ import annotations

import re
from typing import Any, Final

ANSWER_LIMIT_BYTES = 256 * 1024
"""What may come until an answer is complete; the reads that bring it may bring answers of the same batch, too."""

ENTRIES_DIGITS = 3
"""Of a list's length: it has two entries more than a request has quotas."""

_LONG_LIST: Final = re.compile(rb"\n[*%%~>|]\d{%d}" % (ENTRIES_DIGITS + 1))  # of any kind that hiredis knows
_TAIL_BYTES = ENTRIES_DIGITS + 2
"""What a match may have begun with in an earlier read."""


class BoundedReader:
    """hiredis' reader, which it takes the place of.

    Args:
        reader: The reader.
        incomplete: What the reader returns while an answer is not complete.
        refused: Raised when something is too large, or no answer of any script.
    """

    def __init__(self, reader: Any, *, incomplete: object, refused: type[Exception]) -> None:  # noqa: ANN401
        self._reader = reader
        self._incomplete = incomplete
        self._refused = refused
        self._outstanding_bytes = 0
        self._tail = b"\n"

    def feed(self, data: bytes) -> None:
        """Take what was read."""
        self._outstanding_bytes += len(data)
        if self._outstanding_bytes > ANSWER_LIMIT_BYTES:
            raise self._refused("an answer of the shared store is too long")
        seen = self._tail + data
        if _LONG_LIST.search(seen):
            raise self._refused("an answer of the shared store has too many entries")
        self._tail = seen[-_TAIL_BYTES:]
        self._reader.feed(data)

    def gets(self, *arguments: Any) -> object:  # noqa: ANN401
        """Return the next answer, if it is complete."""
        try:
            answer: object = self._reader.gets(*arguments)
        except TypeError:  # a map with a list or a map for a key
            raise self._refused("an answer of the shared store is no answer of any script") from None
        if answer is not self._incomplete:
            self._outstanding_bytes = 0
        return answer

    def has_data(self) -> bool:
        """Whether the beginning of an answer is there."""
        return bool(self._reader.has_data())


def bounded_parser() -> type[Any]:
    """Return redis-py's parser with such a reader; it is an optional extra, so it is imported when it is used.

    Raises:
        ImportError: redis-py or hiredis is not there.
    """
    from redis._parsers.hiredis import NOT_ENOUGH_DATA, _AsyncHiredisParser  # noqa: PLC0415
    from redis.exceptions import InvalidResponse  # noqa: PLC0415
    from redis.utils import HIREDIS_AVAILABLE  # noqa: PLC0415

    if not HIREDIS_AVAILABLE:
        raise ImportError("hiredis is not installed")

    class BoundedParser(_AsyncHiredisParser):
        """See `BoundedReader`."""

        def on_connect(self, connection: Any) -> None:  # noqa: ANN401
            """Read from a connection."""
            super().on_connect(connection)  # type: ignore[no-untyped-call]
            reader = BoundedReader(self._reader, incomplete=NOT_ENOUGH_DATA, refused=InvalidResponse)
            self._reader = reader  # type: ignore[assignment]

    return BoundedParser
