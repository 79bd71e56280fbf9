"""Bodies: the end is found wherever the reads are cut, and broken framing is never accepted."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.limiter.framing import CHUNK_LINE_LIMIT_BYTES, ChunkScanner, FixedBody, FramingError, OpenBody

STREAM = b"5\r\nhello\r\n1;a=b\r\n \r\n00000A\r\n0123456789\r\n0\r\nT: a\r\n\r\n"
PAYLOAD = b"hello 0123456789"


def scan(reads: list[bytes]) -> tuple[int, bytes, ChunkScanner]:
    scanner, payload, used = ChunkScanner(), [], 0
    for read in reads:
        used += scanner.feed(read, payload.append)
        if scanner.done:
            break
    return used, b"".join(payload), scanner


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % len(data) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges) if a < b]


@given(st.lists(st.integers(0, 1000), max_size=8), st.binary(max_size=5))
def test_the_end_of_chunks_is_the_same_wherever_reads_are_cut(cuts: list[int], behind: bytes) -> None:
    used, payload, scanner = scan(pieces(STREAM + behind, cuts))
    assert (used, payload, scanner.done) == (len(STREAM), PAYLOAD, True)


def test_single_bytes_find_the_same_end() -> None:
    used, payload, scanner = scan([bytes((byte,)) for byte in STREAM])
    assert (used, payload, scanner.done) == (len(STREAM), PAYLOAD, True)


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=6), st.lists(st.integers(0, 3000), max_size=6))
def test_any_payload_comes_through(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(b"%x\r\n%b\r\n" % (len(payload), payload) for payload in payloads) + b"0\r\n\r\n"
    used, payload, scanner = scan(pieces(stream, cuts))
    assert (used, payload, scanner.done) == (len(stream), b"".join(payloads), True)


BROKEN = {
    "no size": b"\r\nhello",
    "word": b"hello\r\n",
    "sign": b"+5\r\nhello\r\n",
    "minus": b"-5\r\nhello\r\n",
    "prefix": b"0x5\r\nhello\r\n",
    "underscore": b"1_0\r\nhello\r\n",
    "blank before": b" 5\r\nhello\r\n",
    "blank behind": b"5 \r\nhello\r\n",
    "nine digits": b"000000005\r\nhello\r\n",
    "sixteen digits": b"FFFFFFFFFFFFFFFF\r\n",
    "bare LF": b"5\nhello\r\n",
    "bare LF behind extension": b"5;a\nhello\r\n",
    "CR in extension": b"5;a\rb\r\nhello\r\n",
    "NUL in extension": b"5;\x00\r\nhello\r\n",
    "longer than its size": b"5\r\nhello!\r\n",
    "bare LF behind payload": b"5\r\nhello\n0\r\n\r\n",
    "CR and no LF behind payload": b"5\r\nhello\rX0\r\n\r\n",
    "overlong line": b"5;" + b"a" * CHUNK_LINE_LIMIT_BYTES + b"\r\n",
    "overlong line, unfinished": b"5;" + b"a" * CHUNK_LINE_LIMIT_BYTES,
    "trailer without colon": b"0\r\nnonsense\r\n\r\n",
    "folded trailer": b"0\r\nA: b\r\n c\r\n\r\n",
    "bare LF in trailer": b"0\r\nA: b\nC: d\r\n\r\n",
    "overlong trailer": b"0\r\n" + b"A: b\r\n" * 2000 + b"\r\n",
    "endless trailer": b"0\r\n" + b"A: b\r\n" * 2000,
}


@pytest.mark.parametrize("stream", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("step", [1, 2, 7, 100_000])
def test_broken_chunks_are_refused_wherever_reads_are_cut(stream: bytes, step: int) -> None:
    with pytest.raises(FramingError):
        scan([stream[at : at + step] for at in range(0, len(stream), step)])


def test_something_can_be_put_between_chunks_only() -> None:
    scanner = ChunkScanner()
    seen = []
    for byte in b"2\r\nab\r\n0\r\n\r\n":
        scanner.feed(bytes((byte,)))
        seen.append(scanner.at_boundary)
    assert seen == [False] * 6 + [True] + [False] * 5


def test_a_fixed_body_takes_its_length_and_no_more() -> None:
    body, taken = FixedBody(5), []
    assert body.feed(b"abc", taken.append) == 3
    assert not body.done
    assert body.feed(b"defg", taken.append) == 2
    assert body.done
    assert b"".join(taken) == b"abcde"


def test_an_open_body_takes_everything() -> None:
    body = OpenBody()
    assert body.feed(b"abc") == 3
    assert not body.done
