"""Passages: every byte goes through as it came, wherever reads are cut, and what is put in keeps the body valid."""

from __future__ import annotations

import itertools
import json
import re
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.limiter.framing import KNOWN_START_BYTES, WHOLE_CHUNKS, ChunkScanner, FramingError
from penstock.limiter.head import ResponseHead, parse_response
from penstock.limiter.passage import Passage, Traffic
from penstock.limiter.refusal import Dialect, Reason, Refused
from penstock.limiter.selector import DirectSelector
from penstock.limiter.transport import Transport
from penstock.limiter.usage import UsageWatch
from penstock.limiter.wish import Kind

EVENT = b"data: {}\n\n"
END = b"0\r\n\r\n"
REFUSED = Refused(Reason.ENGINE_FAILED, "why")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def head(*lines: bytes) -> ResponseHead:
    return parse_response(b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"", b""]), method=b"POST")


EVENTS = head(b"Content-Type: text/event-stream", b"Transfer-Encoding: chunked")


class Client:
    """Sees what a passage sends and how it ends. Without a connection to read from it is on no lane."""

    def __init__(
        self, announced: ResponseHead = EVENTS, *, unchunk: bool = False, watch: UsageWatch | None = None
    ) -> None:
        self.seen = b""
        self.writes = 0
        self.ends: list[str] = []
        self.traffic = Traffic()
        self.passage = Passage(
            announced,
            owner=self,
            sink=cast("Transport", self),
            selector=cast("DirectSelector", None),
            traffic=self.traffic,
            unchunk=unchunk,
            watch=watch,
        )

    def write(self, data: bytes) -> None:
        self.seen += data
        self.writes += 1

    def completed(self, *, surplus: bool) -> None:
        self.ends.append("surplus" if surplus else "completed")

    def broke_off(self, _error: FramingError) -> None:
        self.ends.append("broke off")

    def take(self, *reads: bytes) -> Client:
        for read in reads:
            if not self.ends:
                self.passage.receive(read)
        return self


@given(
    st.lists(st.sampled_from([EVENT, EVENT * 3, b"x", b"data: " + b"y" * 400 + b"\n\n", b"\n"]), max_size=12),
    st.lists(st.integers(0, 4000), max_size=8),
    st.booleans(),
)
def test_a_stream_comes_through_unchanged_wherever_reads_are_cut(
    payloads: list[bytes], cuts: list[int], whole: bool
) -> None:
    reads = [*map(chunk, payloads), END]
    stream = b"".join(reads)
    if not whole:
        edges = [0, *sorted(cut % len(stream) for cut in cuts), len(stream)]
        reads = [stream[a:b] for a, b in itertools.pairwise(edges) if a < b]
    client = Client().take(*reads)
    assert (client.seen, client.ends) == (stream, ["completed"])
    assert client.traffic.bytes_sent == len(stream)


def test_what_is_half_sent_is_never_taken_for_a_new_chunk() -> None:
    inner = chunk(EVENT)
    outer = chunk(inner + inner + b"tail")
    client = Client().take(inner, outer[:4], inner, inner, b"tail\r\n", END)
    assert (client.seen, client.ends) == (inner + outer + END, ["completed"])


def test_only_whole_size_lines_are_learned() -> None:
    Client().take(chunk(b"a" * 0x1234), b"5;a=b\r\nhello\r\n", chunk(b"c" * 0x123), END)
    assert WHOLE_CHUNKS[b"123\r\n"] == 5 + 0x123 + 2
    assert not [start for start in WHOLE_CHUNKS if len(start) != KNOWN_START_BYTES or b"\r\n" not in start]


@pytest.mark.parametrize(
    ("reads", "before"),
    [
        ([chunk(EVENT)], b""),
        ([chunk(EVENT), chunk(EVENT)], b""),
        ([chunk(EVENT)[:-2], b"\r\n"], b""),
        ([chunk(EVENT), chunk(b"data: half")], b"\n\n"),
        ([chunk(b"data: half")[:-2], b"\r\n"], b"\n\n"),
    ],
    ids=["one event", "two events", "end cut off", "half an event", "half an event, cut"],
)
def test_a_farewell_is_a_whole_event_in_a_chunk_of_its_own(reads: list[bytes], before: bytes) -> None:
    farewell = Client().take(*reads).passage.farewell(REFUSED, Dialect.OPENAI)
    line, _, rest = farewell.partition(b"\r\n")
    event = rest[: int(line, 16)]
    assert rest[len(event) :] == b"\r\n" + END
    assert event.startswith(before + b"data: {")
    assert json.loads(event.removeprefix(before)[6:])["error"]["code"] == "engine_failed"


@pytest.mark.parametrize(
    ("announced", "reads"),
    [
        (EVENTS, [chunk(EVENT)[:-1]]),
        (EVENTS, [b"zz\r\n"]),
        (head(b"Content-Type: application/json", b"Transfer-Encoding: chunked"), [chunk(b"{}")]),
        (head(b"Content-Type: text/event-stream", b"Content-Length: 100"), [EVENT]),
    ],
    ids=["inside a chunk", "broken framing", "no event stream", "fixed length"],
)
def test_there_is_no_farewell_where_it_would_be_part_of_something_else(
    announced: ResponseHead, reads: list[bytes]
) -> None:
    assert Client(announced).take(*reads).passage.farewell(REFUSED, Dialect.OPENAI) == b""


def test_a_client_without_chunks_gets_the_payload() -> None:
    client = Client(unchunk=True).take(chunk(EVENT), chunk(EVENT), END)
    assert (client.seen, client.ends) == (EVENT * 2, ["completed"])


def test_head_and_first_bytes_are_one_write() -> None:
    client = Client()
    client.passage.begin(b"head ", chunk(EVENT))
    assert (client.seen, client.writes) == (b"head " + chunk(EVENT), 1)


def test_what_comes_behind_the_end_is_not_sent_on() -> None:
    client = Client().take(chunk(EVENT), END + b"HTTP/1.1 200 OK")
    assert (client.seen, client.ends) == (chunk(EVENT) + END, ["surplus"])


# ---- without the usage event that the limiter asked for


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields, separators=(",", ":")).encode() + b"\n\n"


def token(text: str, finish: str | None = None) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": finish}])


ROLE = event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
USAGE = event(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 3})
DONE = b"data: [DONE]\n\n"

tokens = st.lists(
    st.sampled_from([token("a"), token("bc"), token("d" * 300), token("e" * 9000), b": ping\n\n", b"data: \r\n\r\n"]),
    max_size=6,
)
edges = st.lists(st.integers(0, 40_000), max_size=12)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({0, *(one % (len(data) + 1) for one in at), len(data)})
    return [data[begin:end] for begin, end in itertools.pairwise(places)]


def removing() -> UsageWatch:
    return UsageWatch(Kind.CHAT, stream=True, remove_usage=True)


def unframed(body: bytes) -> tuple[bytes, ChunkScanner]:
    """Read a chunked body as a client does."""
    payload: list[bytes] = []
    scanner = ChunkScanner()
    assert scanner.feed(body, payload.append) == len(body)
    return b"".join(payload), scanner


@given(events=tokens, chunks=edges, reads=edges, late=st.booleans())
def test_the_client_gets_everything_but_the_usage_event_in_valid_chunks(
    events: list[bytes], chunks: list[int], reads: list[int], late: bool
) -> None:
    before, after = [ROLE, *events, token("", "stop")], [DONE] if late else []
    payload = b"".join([*before, USAGE, *after])
    stream = b"".join(map(chunk, cut(payload, chunks))) + END
    watch = removing()
    client = Client(watch=watch).take(*cut(stream, reads))
    assert client.ends == ["completed"]
    seen, scanner = unframed(client.seen)
    assert seen == b"".join([*before, *after])
    assert scanner.done
    assert client.traffic.bytes_sent == len(client.seen)
    assert (watch.removed, watch.prompt_tokens, watch.output_tokens) == (1, 7, 3)


@given(events=tokens, chunks=edges, reads=edges)
def test_a_client_without_chunks_gets_everything_but_the_usage_event(
    events: list[bytes], chunks: list[int], reads: list[int]
) -> None:
    before = [ROLE, *events]
    stream = b"".join(map(chunk, cut(b"".join([*before, USAGE, DONE]), chunks))) + END
    client = Client(watch=removing(), unchunk=True).take(*cut(stream, reads))
    assert (client.seen, client.ends) == (b"".join([*before, DONE]), ["completed"])


@given(events=tokens, reads=edges, rest=st.sampled_from([b"", b"data: ", USAGE[:-1], b'data: {"choices":[],"us']))
def test_of_a_body_that_ends_with_its_connection_nothing_else_is_lost(
    events: list[bytes], reads: list[int], rest: bytes
) -> None:
    client = Client(head(b"Content-Type: text/event-stream"), watch=removing())
    client.take(*cut(b"".join([ROLE, *events, rest]), reads))
    client.passage.input_ended()
    kept = b"" if rest == USAGE[:-1] else rest
    assert (client.seen, client.ends) == (b"".join([ROLE, *events, kept]), ["completed"])
    assert client.traffic.bytes_sent == len(client.seen)


@given(events=tokens, chunks=edges, reads=edges, stop=st.integers(0, 12))
def test_wherever_a_stream_breaks_off_filler_and_farewell_keep_it_valid(
    events: list[bytes], chunks: list[int], reads: list[int], stop: int
) -> None:
    payload = b"".join([ROLE, *events, USAGE, DONE])
    stream = b"".join(map(chunk, cut(payload, chunks))) + END
    client = Client(watch=removing()).take(*cut(stream, reads)[:-1][:stop])
    filler, farewell = client.passage.filler(), client.passage.farewell(REFUSED, Dialect.OPENAI)
    assert (filler, client.ends) == (b"0", [])
    seen, scanner = unframed(client.seen + filler + farewell)
    assert scanner.done
    *_, last, rest = re.split(rb"\r\n\r\n|\n\n", seen)
    assert json.loads(last.lstrip(b"\r\n")[6:])["error"]["code"] == "engine_failed"
    assert rest == b""
    sent, _ = unframed(client.seen)
    assert (payload.replace(USAGE, b"")).startswith(sent)


def test_chunks_that_lose_nothing_go_on_as_they_came() -> None:
    odd = b"0" + chunk(ROLE + token("a"))
    client = Client(watch=removing()).take(odd, chunk(USAGE), END)
    assert client.seen == odd + END


def test_a_read_that_is_nothing_but_the_usage_event_is_no_write() -> None:
    client = Client(watch=removing()).take(chunk(ROLE))
    before = client.writes
    client.take(chunk(USAGE))
    assert client.writes == before
    assert client.passage.filler() == b"0"
