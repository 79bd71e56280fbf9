"""What a store in the wrong hands answers takes neither memory nor time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import hiredis
import pytest

from penstock.limiter import storescripts
from penstock.limiter.storeanswers import ANSWER_LIMIT_BYTES, BoundedReader
from penstock.limiter.storeline import Line, LineError
from penstock.limiter.storeurl import StoreUrl

INCOMPLETE = object()
READ_BYTES = 64 * 1024


class RefusedError(Exception):
    """What the reader is told to raise."""


def reader() -> BoundedReader:
    return BoundedReader(hiredis.Reader(notEnoughData=INCOMPLETE), incomplete=INCOMPLETE, refused=RefusedError)


def read(bounded: BoundedReader, pieces: list[bytes]) -> list[object]:
    """Return the answers that are complete in the end."""
    found = []
    for piece in pieces:
        bounded.feed(piece)
        while (answer := bounded.gets()) is not INCOMPLETE:
            found.append(answer)
    return found


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    "announced",
    [b"*1000\r\n", b"*4294967295\r\n", b"%99999\r\n", b"*2\r\n:1\r\n*400000000\r\n", b"+OK\r\n*400000000\r\n"],
    ids=["a list", "a huge list", "a map", "a list in a list", "the second answer"],
)
def test_a_list_that_is_announced_too_long_never_reaches_the_parser(announced: bytes, size: int) -> None:
    bounded = reader()
    with pytest.raises(RefusedError):
        read(bounded, cut(announced, size))


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_what_scripts_answer_is_read_as_ever(size: int) -> None:
    bounded = reader()
    found = read(bounded, cut(b"*999\r\n" + b":12345678\r\n" * 999 + b"+OK\r\n*2\r\n$9\r\nF*1234567\r\n:9\r\n", size))
    assert found == [[12345678] * 999, b"OK", [b"F*1234567", 9]]
    assert not bounded.has_data()


def test_an_answer_that_does_not_end_is_refused() -> None:
    bounded = reader()
    text = [b"x" * READ_BYTES] * (ANSWER_LIMIT_BYTES // READ_BYTES)
    assert read(bounded, [b"$2000000000\r\n", *text[1:]]) == []
    with pytest.raises(RefusedError):
        bounded.feed(text[0])


def test_any_number_of_answers_is_read() -> None:
    bounded = reader()
    text = b"x" * (READ_BYTES // 2)
    answer = b"$%d\r\n%b\r\n" % (len(text), text)
    count = 3 * ANSWER_LIMIT_BYTES // len(text)
    assert read(bounded, [answer] * count) == [text] * count


@asynccontextmanager
async def store_that_says(answer: bytes) -> AsyncIterator[int]:
    """Serve a store that says the same to everything; whoever closes ends it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while await reader.read(READ_BYTES):
                writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield listening.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    "answer",
    [
        b"*4000000000\r\n",
        b"$2000000000\r\n" + b"x" * 2 * ANSWER_LIMIT_BYTES,
        b"what?\r\n",
        b"%1\r\n%1\r\n:1\r\n:2\r\n:3\r\n",
    ],
    ids=["a huge list", "a text without an end", "another protocol", "a map for a key"],
)
async def test_such_a_store_is_said_not_to_be_understood(answer: bytes) -> None:
    async with store_that_says(answer) as port:
        with pytest.raises(LineError, match="not_understood"):
            await Line.open(StoreUrl.parse(f"redis://127.0.0.1:{port}/0"), (storescripts.decide(),))
