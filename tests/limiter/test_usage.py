"""Usage: found in every answer, however it is cut, and the event that was not asked for is taken out whole."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admission.errorclass import EngineError
from penstock.limiter.usage import EVENT_LIMIT_BYTES, HOLD_LIMIT_BYTES, UsageWatch
from penstock.limiter.wish import Kind

RECORDED = {
    path.stem: path.read_bytes().partition(b"\r\n\r\n")[2]
    for path in sorted((Path(__file__).parent / "fixtures").glob("*.http"))
}
DONE = b"data: [DONE]\n\n"


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields, separators=(",", ":")).encode() + b"\n\n"


def token(text: str = "x", finish: str | None = None) -> bytes:
    return event(id="c", choices=[{"index": 0, "delta": {"content": text}, "finish_reason": finish}])


USAGE = event(id="c", choices=[], usage={"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10})
ROLE = event(id="c", choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
TWO_CHOICES = event(choices=[{"delta": {"content": "x"}, "finish_reason": None} for _ in range(2)])
AN_ENTRY = b'odd: {"choices":[{"delta":{}}]}\n'
STREAM = [ROLE, token("a"), token("b"), token("c"), token("", "stop"), USAGE, DONE]


def cut(payload: bytes, size: int) -> list[bytes]:
    return [payload[at : at + size] for at in range(0, len(payload), size)]


def watch(reads: list[bytes], kind: Kind = Kind.CHAT, **options: bool) -> tuple[UsageWatch, bytes]:
    seen = UsageWatch(kind, **({"stream": True} | options))
    return seen, b"".join(seen.feed(read) for read in reads) + seen.end()


@pytest.mark.parametrize("size", [1, 2, 13, 100, 1_000_000])
@pytest.mark.parametrize(
    ("recorded", "kind", "prompt", "output", "chunks"),
    [
        ("vllm-chat-stream-usage", Kind.CHAT, 11, 4, 4),
        ("vllm-messages-stream", Kind.MESSAGES, 11, 3, 3),
        ("vllm-responses-stream", Kind.RESPONSES, 11, 3, 2),
        ("llama-chat-stream", Kind.CHAT, 31, 4, 4),
        ("llama-chat-stream-usage", Kind.CHAT, 31, 4, 4),
    ],
)
def test_the_usage_of_recorded_streams_is_found_wherever_they_are_cut(
    recorded: str, kind: Kind, prompt: int, output: int, chunks: int, size: int
) -> None:
    payload = RECORDED[recorded]
    seen, passed = watch(cut(payload, size), kind)
    assert passed == payload
    assert (seen.prompt_tokens, seen.output_tokens, seen.generated_tokens) == (prompt, output, output)
    assert seen.chunks == chunks
    assert (seen.error, seen.aborted, seen.removed) == (None, False, 0)


@pytest.mark.parametrize("size", [1, 13, 1_000_000])
@pytest.mark.parametrize(
    ("recorded", "removed"), [("vllm-chat-stream-usage", b'"usage":{'), ("llama-chat-stream-usage", b'"usage":{')]
)
def test_of_recorded_streams_exactly_the_usage_event_is_removed(recorded: str, removed: bytes, size: int) -> None:
    events = [one + b"\n\n" for one in RECORDED[recorded].split(b"\n\n")[:-1]]
    seen, passed = watch(cut(RECORDED[recorded], size), remove_usage=True)
    kept = b"".join(one for one in events if removed not in one)
    assert passed == kept + RECORDED[recorded][len(b"".join(events)) :]
    assert seen.removed == 1
    assert seen.output_tokens == 4


@given(
    cuts=st.lists(st.integers(0, len(b"".join(STREAM))), max_size=12),
    remove=st.booleans(),
    shout=st.booleans(),
)
def test_wherever_reads_are_cut_the_client_gets_every_other_byte(cuts: list[int], remove: bool, shout: bool) -> None:
    events = [one.replace(b"\n\n", b"\r\n\r\n") for one in STREAM] if shout else STREAM
    payload = b"".join(events)
    edges = sorted({0, *(min(at, len(payload)) for at in cuts), len(payload)})
    reads = [payload[begin:end] for begin, end in pairwise(edges)]
    seen, passed = watch(reads, remove_usage=remove)
    assert passed == b"".join(one for one in events if not (remove and b"usage" in one))
    assert (seen.prompt_tokens, seen.output_tokens, seen.chunks) == (7, 3, 3)
    assert seen.removed == int(remove)
    assert seen.at_boundary


def test_usage_and_end_mark_in_one_read_leave_the_end_mark() -> None:
    seen, passed = watch([ROLE, token(), USAGE + DONE], remove_usage=True)
    assert passed == ROLE + token() + DONE
    assert seen.removed == 1


def test_only_one_event_is_ever_removed() -> None:
    seen, passed = watch([ROLE, USAGE, USAGE + DONE], remove_usage=True)
    assert passed == ROLE + USAGE + DONE
    assert seen.removed == 1


def test_a_token_is_never_held_back() -> None:
    seen = UsageWatch(Kind.CHAT, stream=True, remove_usage=True)
    assert seen.feed(ROLE) == ROLE
    one = token("hello")
    begun = one.index(b"hello")
    assert seen.feed(one[:begun]) == one[:begun]
    assert not seen.at_boundary
    assert seen.feed(one[begun:]) == one[begun:]
    assert seen.at_boundary


def test_of_an_event_that_shows_nothing_little_is_held_back() -> None:
    seen = UsageWatch(Kind.CHAT, stream=True, remove_usage=True)
    seen.feed(ROLE)
    odd = b'data: {"id":"' + b"x" * 2 * HOLD_LIMIT_BYTES
    assert seen.feed(odd[:HOLD_LIMIT_BYTES]) == b""
    assert seen.feed(odd[HOLD_LIMIT_BYTES:]) == odd


def test_what_is_held_back_at_the_end_is_given_back() -> None:
    assert watch([ROLE, USAGE[:-20]], remove_usage=True)[1] == ROLE + USAGE[:-20]
    seen, passed = watch([ROLE, USAGE[:-2]], remove_usage=True)
    assert (passed, seen.removed) == (ROLE, 1)


def test_the_clients_own_usage_event_stays() -> None:
    seen, passed = watch(STREAM)
    assert passed == b"".join(STREAM)
    assert seen.output_tokens == 3


@pytest.mark.parametrize(
    "text", ['"finish_reason":null', '{"usage":{"prompt_tokens":1,"completion_tokens":2}}', "\n\ndata: [DONE]\n\n"]
)
def test_what_a_model_says_is_not_taken_for_the_protocol(text: str) -> None:
    reads = [ROLE, token(text), token(text, "stop"), USAGE, DONE]
    seen, passed = watch(reads, remove_usage=True)
    assert passed == b"".join(reads).replace(USAGE, b"")
    assert (seen.output_tokens, seen.chunks) == (3, 2)


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_without_usage_tokens_are_counted(size: int) -> None:
    seen, _ = watch(cut(b"".join([ROLE, token("a"), token("b"), token("c", "length"), DONE]), size))
    assert seen.output_tokens is None
    assert seen.generated_tokens == 3


def test_several_tokens_in_one_read_all_count() -> None:
    assert watch([ROLE, token() + token() + token()])[0].chunks == 3


@pytest.mark.parametrize("size", [1, 40, 1_000_000])
@pytest.mark.parametrize(
    ("written", "chunks", "left"),
    [
        pytest.param(TWO_CHOICES + token(), 2, TWO_CHOICES + token(), id="one token for each event with the mark"),
        pytest.param(TWO_CHOICES + USAGE, 1, TWO_CHOICES, id="two marks in one event do not hide the usage event"),
        pytest.param(USAGE.replace(b"\n", b"\r\n") + token(), 1, token(), id="nor do other line ends"),
        pytest.param(AN_ENTRY + USAGE, 0, AN_ENTRY + USAGE, id="an event that shows an entry is not removed"),
    ],
)
def test_behind_a_stream_s_beginning_one_read_tells_what_its_pieces_tell(
    written: bytes, chunks: int, left: bytes, size: int
) -> None:
    seen, passed = watch([ROLE, *cut(written, size)], remove_usage=True)
    assert passed == ROLE + left
    assert (seen.chunks, seen.output_tokens) == (chunks, 3 if b'"usage"' in written else None)


def test_comments_are_no_tokens_and_pass() -> None:
    reads = [ROLE, b": ping\n\n", token(), b": ping\n\n" + token(), b"\n\n"]
    seen, passed = watch(reads, remove_usage=True)
    assert passed == b"".join(reads)
    assert seen.chunks == 2


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_an_abort_is_seen_in_streams(size: int) -> None:
    assert watch(cut(ROLE + token("a") + token("", "abort") + DONE, size))[0].aborted


def test_an_abort_is_seen_in_whole_answers() -> None:
    body = json.dumps({"choices": [{"finish_reason": "abort", "message": {}}], "usage": {"prompt_tokens": 1}}).encode()
    assert watch([body], stream=False)[0].aborted


@pytest.mark.parametrize(
    ("kind", "written", "error"),
    [
        (Kind.CHAT, event(error={"message": "m", "type": "t", "code": 500}), EngineError("t", "m", 500)),
        (Kind.CHAT, event(error="Unauthorized"), EngineError(message="Unauthorized")),
        (
            Kind.MESSAGES,
            b"event: error\n" + event(type="error", error={"type": "overloaded_error", "message": "m"}),
            EngineError("overloaded_error", "m"),
        ),
        (
            Kind.RESPONSES,
            event(type="response.failed", response={"status": "failed", "error": {"code": "x", "message": "m"}}),
            EngineError(message="m"),
        ),
    ],
)
@pytest.mark.parametrize("size", [1, 1_000_000])
def test_an_error_in_a_stream_is_seen(kind: Kind, written: bytes, error: EngineError, size: int) -> None:
    seen, passed = watch(cut(ROLE + written + DONE, size), kind, remove_usage=True)
    assert seen.error == error
    assert passed == ROLE + written + DONE


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(
    ("kind", "body", "prompt", "output"),
    [
        pytest.param(Kind.CHAT, RECORDED["vllm-chat"], 11, 4, id="recorded"),
        pytest.param(Kind.MESSAGES, b'{"usage":{"input_tokens":5,"output_tokens":2}}', 5, 2, id="anthropic"),
        pytest.param(
            Kind.MESSAGES,
            b'{"usage":{"input_tokens":5,"cache_read_input_tokens":30,"output_tokens":2}}',
            35,
            2,
            id="anthropic with cached tokens apart",
        ),
        pytest.param(Kind.NATIVE, b'{"content":"x","tokens_predicted":4,"tokens_evaluated":31}', 31, 4, id="llama.cpp"),
        pytest.param(
            Kind.NATIVE, b'{"timings":{"cache_n":30,"prompt_n":1,"predicted_n":4}}', 31, 4, id="llama.cpp timings"
        ),
        pytest.param(Kind.ENCODE, b'{"data":[],"usage":{"prompt_tokens":9}}', 9, None, id="embeddings"),
        pytest.param(Kind.CHAT, b'{"usage":null}', None, None, id="none"),
        pytest.param(Kind.CHAT, b"<html>", None, None, id="not JSON"),
    ],
)
def test_the_usage_of_whole_answers_is_found(
    kind: Kind, body: bytes, prompt: int | None, output: int | None, size: int
) -> None:
    seen, passed = watch(cut(body, size), kind, stream=False, remove_usage=True)
    assert passed == body
    assert (seen.prompt_tokens, seen.output_tokens) == (prompt, output)


def test_the_usage_of_a_large_answer_is_found_with_bounded_memory() -> None:
    vectors = json.dumps({"data": [{"embedding": [0.1] * 60_000}], "usage": {"prompt_tokens": 9, "total_tokens": 9}})
    seen = UsageWatch(Kind.ENCODE, stream=False)
    for read in cut(vectors.encode(), 5000):
        seen.feed(read)
        assert len(seen._rest) <= EVENT_LIMIT_BYTES
    seen.end()
    assert seen.prompt_tokens == 9


def test_the_usage_of_a_large_last_event_is_found_with_bounded_memory() -> None:
    tools = [{"parameters": {"usage": {"input_tokens": 99, "output_tokens": 99}}}]
    last = event(
        response={
            "status": "completed",
            "output": "y" * 200_000,
            "tools": tools,
            "usage": {"input_tokens": 5, "output_tokens": 6},
            "user": {"usage": {"a": 1}},
        }
    )
    seen = UsageWatch(Kind.RESPONSES, stream=True)
    for read in cut(last + DONE, 3000):
        assert seen.feed(read) == read
        assert len(seen._rest) <= EVENT_LIMIT_BYTES
    assert (seen.prompt_tokens, seen.output_tokens) == (5, 6)
    assert seen.at_boundary


@given(st.lists(st.binary(max_size=40) | st.sampled_from([*STREAM, b"data: {", b"\n", b"\n\n", b"\r"]), max_size=12))
def test_whatever_an_engine_sends_passes(reads: list[bytes]) -> None:
    payload = b"".join(reads)
    assert watch(reads)[1] == payload
    seen, passed = watch(reads, remove_usage=True)
    assert passed == payload or seen.removed == 1
    seen, passed = watch(reads, stream=False)
    assert passed == payload
