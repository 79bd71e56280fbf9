"""Bodies: read as the engine reads them, refused in words, and never changed but by what is spliced in."""

from __future__ import annotations

import json
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admission.cost import PromptSize
from penstock.limiter.amendment import with_usage
from penstock.limiter.body import (
    NESTING_LIMIT,
    SEQUENCES_LIMIT,
    STRUCTURE_LIMIT,
    TOKENS_LIMIT,
    read_wish,
)
from penstock.limiter.refusal import Reason, Refused
from penstock.limiter.wish import KINDS, Kind, Wish

CHAT = "/v1/chat/completions"


def wish(path: str, **fields: object) -> Wish:
    return read_wish(path, json.dumps(fields).encode())


@pytest.mark.parametrize(
    ("path", "fields", "expected"),
    [
        pytest.param(
            CHAT,
            {"model": "m", "stream": True, "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]},
            Wish(
                kind=Kind.CHAT, model="m", stream=True, max_output_tokens=9, prompt=PromptSize(text_bytes=9, messages=1)
            ),
            id="chat",
        ),
        pytest.param(
            CHAT,
            {"n": 3, "max_completion_tokens": 7, "stream_options": {"include_usage": True}, "stream": True},
            Wish(kind=Kind.CHAT, stream=True, include_usage=True, sequences=3, max_output_tokens=7),
            id="chat with several answers",
        ),
        pytest.param(
            "/v1/chat/completions/batch",
            {"messages": [[{"content": "ab"}], [{"content": "c"}]]},
            Wish(kind=Kind.CHAT, sequences=2, prompt=PromptSize(text_bytes=3, messages=2)),
            id="several chats",
        ),
        pytest.param(
            "/v1/completions",
            {"prompt": ["ab", "c"], "n": 2, "best_of": 3, "suffix": "z"},
            Wish(kind=Kind.COMPLETIONS, sequences=6, prompt=PromptSize(text_bytes=4)),
            id="completions of several prompts",
        ),
        pytest.param(
            "/v1/completions",
            {"prompt": [1, 2, 3]},
            Wish(kind=Kind.COMPLETIONS, prompt=PromptSize(token_ids=3)),
            id="completions of token ids",
        ),
        pytest.param(
            "/v1/completions",
            {"prompt": [[1, 2], [3]]},
            Wish(kind=Kind.COMPLETIONS, sequences=2, prompt=PromptSize(token_ids=3)),
            id="completions of several token lists",
        ),
        pytest.param(
            "/completion",
            {"prompt": ["ab", 5], "n_predict": 12, "stream": True},
            Wish(kind=Kind.NATIVE, stream=True, max_output_tokens=12, prompt=PromptSize(text_bytes=2, token_ids=1)),
            id="llama.cpp completion of a mixed prompt",
        ),
        pytest.param(
            "/completion", {"prompt": "a", "n_predict": -1}, Wish(kind=Kind.NATIVE, prompt=PromptSize(text_bytes=1)),
            id="llama.cpp without a bound",
        ),
        pytest.param(
            "/infill",
            {"input_prefix": "ab", "input_suffix": "c", "input_extra": [{"filename": "f", "text": "def"}]},
            Wish(kind=Kind.NATIVE, prompt=PromptSize(text_bytes=7)),
            id="llama.cpp infill",
        ),
        pytest.param(
            "/v1/messages",
            {"system": "be", "messages": [{"content": [{"type": "text", "text": "abc"}]}], "max_tokens": 5},
            Wish(kind=Kind.MESSAGES, max_output_tokens=5, prompt=PromptSize(text_bytes=5, messages=1)),
            id="anthropic",
        ),
        pytest.param(
            "/v1/responses",
            {"instructions": "ab", "input": [{"content": "c"}], "max_output_tokens": 4},
            Wish(kind=Kind.RESPONSES, max_output_tokens=4, prompt=PromptSize(text_bytes=3)),
            id="responses",
        ),
        pytest.param(
            "/v1/embeddings",
            {"input": ["ab", "c"], "stream": True, "n": 9},
            Wish(kind=Kind.ENCODE, max_output_tokens=0, prompt=PromptSize(text_bytes=3)),
            id="embeddings generate nothing",
        ),
        pytest.param(
            "/v1/rerank",
            {"query": "ab", "documents": ["c", {"text": "de"}]},
            Wish(kind=Kind.ENCODE, max_output_tokens=0, prompt=PromptSize(text_bytes=5)),
            id="rerank",
        ),
        pytest.param(
            "/tokenize", {"content": "abc"}, Wish(kind=Kind.COUNT, max_output_tokens=0), id="tokenizers cost no tokens"
        ),
        pytest.param(
            CHAT,
            {"tools": [{"a": 1}], "max_tokens": None, "stream": None, "n": None, "stream_options": None, "model": None},
            Wish(kind=Kind.CHAT, prompt=PromptSize(text_bytes=len('[{"a": 1}]'))),
            id="tools are prompt, null is nothing",
        ),
        pytest.param(
            CHAT, {"max_tokens": 5, "max_completion_tokens": 9}, Wish(kind=Kind.CHAT, max_output_tokens=9),
            id="the larger bound counts",
        ),
        pytest.param(CHAT, {"max_tokens": 100.0}, Wish(kind=Kind.CHAT, max_output_tokens=100), id="a whole number"),
        pytest.param(CHAT, {"n": 0}, Wish(kind=Kind.CHAT), id="no answer at all is for the engine to refuse"),
    ],
)  # fmt: skip
def test_a_body_says_what_the_request_wants(path: str, fields: dict[str, object], expected: Wish) -> None:
    assert wish(path, **fields) == expected


def test_a_recording_is_not_looked_into() -> None:
    assert read_wish("/v1/audio/transcriptions", b"--form").prompt == PromptSize(audios=1)


@pytest.mark.parametrize("path", [path for path, kind in KINDS.items() if kind is not Kind.AUDIO])
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "needs a body"),
        (b"[]", "must be an object, not a list"),
        (b'"x"', "must be an object, not a text"),
        (b"{", "no valid JSON"),
        (b"{} {}", "no valid JSON"),
        (b'{"a":NaN}', "no valid JSON"),
        (b'\xef\xbb\xbf{"a":1}', "no valid JSON"),
        ('{"a":1}'.encode("utf-16"), "not valid UTF-8"),
        (b'{"ignored":"\xff"}', "not valid UTF-8"),
        (b'{"ignored":"\xed\xa0\x80"}', "not valid UTF-8"),
        (b'{"prompt":"\\ud800"}', "half of a surrogate pair"),
        (b'{"ignored":"\\ud83d!"}', "half of a surrogate pair"),
        (b'{"\\udc00":1}', "half of a surrogate pair"),
        (b'{"model":1}', "`model` must be a text, not a number"),
        (b'{"stream":"true"}', "`stream` must be true or false, not a text"),
        (b'{"stream":1}', "`stream` must be true or false, not a number"),
        (b'{"stream_options":[]}', "`stream_options` must be an object, not a list"),
        (b'{"stream_options":{"include_usage":"yes"}}', "`stream_options.include_usage` must be true or false"),
        (b'{"n":"2"}', "`n` must be a number, not a text"),
        (b'{"n":true}', "`n` must be a number, not true or false"),
        (b'{"prompt":1e999}', "`prompt` has a value that cannot be read"),
        (b'{"model":"' + b"m" * 300 + b'"}', "longer than 256"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "nested deeper than 128"),
        (b'{"a":' + b"[" * 100_000, "nested deeper than 128"),
    ],
)
def test_what_cannot_be_read_alike_is_refused_in_words(path: str, body: bytes, words: str) -> None:
    with pytest.raises(Refused, match=words) as caught:
        read_wish(path, body)
    assert caught.value.reason is Reason.BAD_REQUEST
    assert caught.value.message.endswith(".")


@pytest.mark.parametrize(
    "body", [b'{"max_tokens":1.5}', b'{"n":2.5}', b'{"n_predict":0.1}', b'{"max_output_tokens":1e-3}']
)
def test_half_a_token_is_refused(body: bytes) -> None:
    with pytest.raises(Refused, match="must be a whole number"):
        read_wish(CHAT, body)


@pytest.mark.parametrize("unit", [b"{},", b"[],", b"1,"])
def test_a_body_of_very_many_values_is_refused_and_one_of_as_much_text_is_not(unit: bytes) -> None:
    """Each value takes memory while it is looked at, however short it is written."""
    many = unit * (STRUCTURE_LIMIT // (2 if unit != b"1," else 1) + 1)
    with pytest.raises(Refused) as caught:
        read_wish(CHAT, b'{"messages": [%b1]}' % many)
    assert caught.value.reason is Reason.BODY_TOO_LARGE
    assert read_wish(CHAT, b'{"prompt": "%b"}' % (b"x" * len(many))).kind is Kind.CHAT


@pytest.mark.parametrize("number", [SEQUENCES_LIMIT + 1, 10**300, float(10**300)])
@pytest.mark.parametrize("field", ["n", "best_of"])
def test_nobody_asks_for_more_answers_than_any_engine_gives(field: str, number: float) -> None:
    with pytest.raises(Refused, match="answers at once"):
        wish(CHAT, **{field: number})
    assert wish(CHAT, **{field: SEQUENCES_LIMIT}).sequences == SEQUENCES_LIMIT


def test_a_bound_of_output_beyond_all_measure_is_a_number_that_can_be_added() -> None:
    assert wish(CHAT, max_tokens=10**300).max_output_tokens == TOKENS_LIMIT


def test_nesting_counts_brackets_and_not_texts() -> None:
    deep = b'{"a":' + b"[" * (NESTING_LIMIT - 1) + b"]" * (NESTING_LIMIT - 1) + b"}"
    assert read_wish(CHAT, deep).kind is Kind.CHAT
    with pytest.raises(Refused, match="nested"):
        read_wish(CHAT, b'{"a":' + b"[" * NESTING_LIMIT + b"]" * NESTING_LIMIT + b"}")
    texts = json.dumps({"prompt": '[{"\\' * 500}).encode()
    assert read_wish("/v1/completions", texts).prompt.text_bytes == 2000
    wide = json.dumps({"messages": [{"content": "]}\\\\"} for _ in range(500)]}).encode()
    assert read_wish(CHAT, wide).prompt.messages == 500


NAMES = st.sampled_from(["model", "stream", "n", "max_tokens", "prompt", "messages", "stream_options", "x"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.sampled_from(["", "a", 'q"\\', "漢", "include_usage"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.just("include_usage"), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """An object with names that repeat, some of them written with escapes, and blanks anywhere between."""
    fields = []
    for name, value in draw(st.lists(st.tuples(NAMES, VALUES), max_size=7)):
        written = json.dumps(name)
        if draw(st.booleans()):
            written = written.replace("s", "\\u0073").replace("m", "\\u006d")
        fields.append(f"{written}{draw(BLANKS)}:{draw(BLANKS)}{json.dumps(value, ensure_ascii=draw(st.booleans()))}")
    return (draw(BLANKS) + "{" + ",".join(fields) + draw(BLANKS) + "}" + draw(BLANKS)).encode()


BLANKS = st.sampled_from(["", " ", "\n\t "])


@given(bodies())
def test_repeated_and_escaped_names_are_read_as_the_engines_read_them(body: bytes) -> None:
    plain = json.dumps(json.loads(body)).encode()  # as vLLM reads it: each name once, with the last value
    try:
        expected = read_wish("/v1/completions", plain)
    except Refused:
        expected = None
    try:
        seen = read_wish("/v1/completions", body)
    except Refused:
        return  # a value that was overruled has a wrong type: refused is safe
    assert seen == expected


@given(st.binary(max_size=60) | bodies())
def test_no_body_is_a_defect(body: bytes) -> None:
    with suppress(Refused):
        read_wish(CHAT, body)


# ---- asking for usage


@given(bodies())
def test_asking_for_usage_changes_nothing_else(body: bytes) -> None:
    try:
        read_wish(CHAT, body)
    except Refused:
        return
    changed = json.loads(with_usage(body))
    before = json.loads(body)
    options = {**(before.pop("stream_options", None) or {}), "include_usage": True}
    assert changed.pop("stream_options") == options
    assert changed == before


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        pytest.param(
            b'{"stream":true} \n', b'{"stream":true,"stream_options":{"include_usage":true}} \n', id="left out"
        ),
        pytest.param(b"{ }", b'{ "stream_options":{"include_usage":true}}', id="empty"),
        pytest.param(
            b'{"a": 1.50, "a": "}"}', b'{"a": 1.50, "a": "}","stream_options":{"include_usage":true}}', id="as written"
        ),
        pytest.param(
            b'{"stream_options" : null,"a":1}', b'{"stream_options" : {"include_usage":true},"a":1}', id="null"
        ),
        pytest.param(
            b'{"stream_options":{"x":"}","include_usage":false},"a":1}',
            b'{"stream_options":{"x":"}","include_usage":true},"a":1}',
            id="said no",
        ),
        pytest.param(
            b'{"stream_options":{"continuous_usage_stats":true}}',
            b'{"stream_options":{"continuous_usage_stats":false,"include_usage":true}}',
            id="usage at the end only",
        ),
        pytest.param(
            b'{"stream_options":{"include_usage":true}, "a":1}',
            b'{"stream_options":{"include_usage":true}, "a":1}',
            id="said yes",
        ),
        pytest.param(
            b'{"stream_options":{"x":1},"stream_options":{"y":1}}',
            b'{"stream_options":{"x":1},"stream_options":{"y":1},"stream_options":{"y":1,"include_usage":true}}',
            id="said twice",
        ),
        pytest.param(
            b'{"metadata":{"stream_options":{}}}',
            b'{"metadata":{"stream_options":{}},"stream_options":{"include_usage":true}}',
            id="a name of its own elsewhere",
        ),
        pytest.param(
            b'{"metadata":{"stream_options":{}},"stream_option\\u0073":{"x":1}}',
            b'{"metadata":{"stream_options":{}},"stream_option\\u0073":{"x":1},'
            b'"stream_options":{"x":1,"include_usage":true}}',
            id="hidden by escapes",
        ),
        pytest.param(
            b'{"stream_option\\u0073":{"x":1}}',
            b'{"stream_option\\u0073":{"x":1},"stream_options":{"x":1,"include_usage":true}}',
            id="named by escapes only",
        ),
        pytest.param(
            b'{"\\u0073tream_options":{"include_usage":true,"x":1}}',
            b'{"\\u0073tream_options":{"include_usage":true,"x":1}}',
            id="said yes by escapes only",
        ),
        pytest.param(
            b'{"\\u0061":1}', b'{"\\u0061":1,"stream_options":{"include_usage":true}}', id="escapes of another name"
        ),
    ],
)
def test_asking_for_usage_is_spliced_in(body: bytes, changed: bytes) -> None:
    assert with_usage(body) == changed
    assert msgspec.json.decode(changed)["stream_options"]["include_usage"] is True


def test_many_copies_of_the_name_do_not_slow_the_splice() -> None:
    body = b'{"a":[' + b'{"stream_options":{}},' * 20_000 + b'0],"stream_options":{}}'
    assert json.loads(with_usage(body))["stream_options"] == {"include_usage": True}
