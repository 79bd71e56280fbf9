"""The comparison itself: what it must notice and what it must not."""

import pytest

from e2e.conformance import normal

EVENT = 'data: {"id":"cmpl-0123456789abcdef","choices":[{"index":0,"text":"a","finish_reason":null}]}\n\n'
LAST = 'data: {"id":"cmpl-0123456789abcdef","choices":[{"index":0,"text":"b","finish_reason":"length"}]}\n\n'


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"id": "cmpl-0123456789abcdef"}, {"id": "cmpl-fedcba9876543210"}),
        ({"created": 1}, {"created": 2}),
        ({"choices": [{"text": "a"}]}, {"choices": [{"text": "b"}]}),
        ({"token_ids": [1, 2]}, {"token_ids": [3, 4]}),
        ({"logprob": -1.0}, {"logprob": -2.5}),
        ({"system_fingerprint": "vllm-0.32.0-aaaaaaaa"}, {"system_fingerprint": "vllm-0.32.0-bbbbbbbb"}),
    ],
)
def test_what_two_servers_cannot_share_is_equal(left, right):
    assert normal.differences(normal.document(left), normal.document(right)) == []


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": None}, {}),
        ({}, {"a": None}),
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": 1.0}),
        ({"a": True}, {"a": 1}),
        ({"usage": {"prompt_tokens": 5}}, {"usage": {"prompt_tokens": 6}}),
        ({"finish_reason": "stop"}, {"finish_reason": "length"}),
        ({"id": "cmpl-0123456789abcdef"}, {"id": "chatcmpl-0123456789abcdef"}),
        ({"id": "cmpl-0123456789abcdef"}, {"id": "cmpl-xyz"}),
        ({"created": 1}, {"created": None}),
        ({"text": "a"}, {"text": None}),
        ({"token_ids": [1, 2]}, {"token_ids": [1]}),
        ({"token_ids": [1]}, {"token_ids": None}),
        ({"error": {"message": "a"}}, {"error": {"message": "b"}}),
        ({"system_fingerprint": "vllm-0.32.0-aaaaaaaa"}, {"system_fingerprint": "vllm-0.31.0-aaaaaaaa"}),
        ({"a": [1, 2]}, {"a": [1]}),
    ],
)
def test_what_a_client_could_notice_is_different(left, right):
    assert normal.differences(normal.document(left), normal.document(right))


def test_forced_text_is_compared():
    assert normal.differences(normal.document({"text": "a"}, exact=True), normal.document({"text": "b"}, exact=True))


def test_a_run_of_like_events_counts_as_one():
    assert normal.events(EVENT + LAST) == normal.events(EVENT * 5 + LAST)


@pytest.mark.parametrize(
    "other",
    [LAST, EVENT, LAST + EVENT, EVENT + LAST + "data: [DONE]\n\n", EVENT + "event: x\n" + LAST],
    ids=["no first", "no last", "other order", "more", "named"],
)
def test_another_sequence_of_events_is_different(other):
    assert normal.differences(normal.events(EVENT + LAST), normal.events(other))


def test_a_stream_cut_within_an_event_is_no_stream():
    with pytest.raises(ValueError, match="does not end"):
        normal.events(EVENT[:-1])


def test_headers_and_status_are_compared():
    plain = normal.answer(200, {"content-type": "application/json", "date": "a", "content-length": "2"}, b"{}")
    assert normal.differences(
        plain, normal.answer(201, {"content-type": "application/json", "content-length": "2"}, b"{}")
    )
    assert normal.differences(
        plain, normal.answer(200, {"content-type": "application/json", "vary": "x", "content-length": "2"}, b"{}")
    )
    assert normal.differences(
        plain, normal.answer(200, {"content-type": "application/json", "transfer-encoding": "chunked"}, b"{}")
    )
    assert (
        normal.differences(
            plain, normal.answer(200, {"content-type": "application/json", "date": "b", "content-length": "2"}, b"{}")
        )
        == []
    )


def test_metrics_are_compared_by_name_type_and_labels_not_by_value():
    text = '# HELP a x\n# TYPE a counter\na{m="1"} 5.0\n'
    assert normal.metrics(text, cache_labels=set()) == normal.metrics(
        text.replace("5.0", "7.0").replace("x", "y"), cache_labels=set()
    )
    for other in (text.replace("counter", "gauge"), text.replace('"1"', '"2"'), text.replace("a{", "b{")):
        assert normal.metrics(text, cache_labels=set()) != normal.metrics(other, cache_labels=set())
