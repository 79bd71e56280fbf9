"""A push reads back as it was made, and anything else is refused in bounded time."""

import json
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock.api.push import (
    PUSH_LIMIT_BYTES,
    STATUSES,
    Decision,
    Envelope,
    MalformedPush,
    PushAnswer,
    Pushed,
    PushedLimits,
    PushResult,
    Version,
)

LIMITS = PushedLimits(
    rate_per_second=2.5,
    share=0.5,
    peers=("10.0.0.2", "fd00::2"),
    policy="{}\n",
    decision=Decision(rule="pressure", signal="waiting", value=7, age_seconds=1.5),
)
PUSHED = Pushed(backend_uid="b", pod_uid="p", boot_id="x", version=Version(3, 4), ttl_seconds=60, limits=LIMITS)


def test_it_reads_back_and_always_gives_the_same_bytes():
    payload = PUSHED.canonical()
    assert Pushed.parse(payload) == PUSHED
    assert Pushed.parse(payload).canonical() == payload
    assert json.loads(payload)["version"] == [3, 4]


def test_an_envelope_reads_back():
    envelope = Envelope(PUSHED.canonical(), b"s" * 64, "k")
    assert Envelope.parse(envelope.render()) == envelope


def test_a_later_release_may_say_more():
    said = json.loads(PUSHED.canonical())
    said["limits"]["later"] = said["later"] = [1]
    assert Pushed.parse(json.dumps(said).encode()) == PUSHED


def test_versions_compare_by_epoch_first():
    assert Version(2, 1) > Version(1, 999) > Version(1, 998)


@pytest.mark.parametrize(
    ("text", "spelled"),
    [("::ffff:10.0.0.1", "10.0.0.1"), ("FD00:0:0::1", "fd00::1"), ("10.0.0.1", "10.0.0.1")],
)
def test_peers_have_one_spelling(text, spelled):
    assert PushedLimits(share=1, peers=(text,), decision=Decision(rule="r")).peers == (spelled,)


@pytest.mark.parametrize(
    "change",
    [
        {"rate_per_second": 0.0},
        {"rate_per_second": -1.0},
        {"rate_per_second": float("inf")},
        {"rate_per_second": 1e300},
        {"rate_per_second": float("nan")},
        {"share": 1.1},
        {"share": -0.1},
        {"peers": ("host.example",)},
        {"peers": ("10.0.0.1",) * 5000},
        {"policy": "x" * (256 * 1024 + 1)},
    ],
    ids=str,
)
def test_what_makes_no_sense_cannot_be_pushed(change):
    with pytest.raises(ValidationError):
        PushedLimits.model_validate({**LIMITS.model_dump(), **change})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", [1]),
        ("version", [1, -1]),
        ("version", [2**62, 0]),
        ("version", [1.5, 0]),
        ("version", "1.2"),
        ("ttlSeconds", 0),
        ("ttlSeconds", 1e9),
        ("ttlSeconds", "60"),
        ("bootId", None),
        ("limits", {}),
    ],
)
def test_what_was_signed_and_is_no_push_is_malformed(field, value):
    said = {**json.loads(PUSHED.canonical()), field: value}
    with pytest.raises(MalformedPush, match=field):
        Pushed.parse(json.dumps(said).encode())


GARBAGE = {
    "empty": b"",
    "no JSON": b"hello",
    "no object": b"[]",
    "a text": b'"payload"',
    "keys missing": b'{"payload": ""}',
    "no base64": b'{"payload": "?", "signature": "", "key": ""}',
    "numbers for texts": b'{"payload": 1, "signature": 2, "key": 3}',
    "not UTF-8": b"\xff" * 100,
    "deep lists": b"[" * PUSH_LIMIT_BYTES,
    "deep objects": b'{"a":' * 200_000,
    "a long number": b"1" * PUSH_LIMIT_BYTES,
    "many values": b"[" + b"1," * 400_000 + b"1]",
    "many objects": b"[" + b"{}," * 300_000 + b"{}]",
    "too long": b"x" * (PUSH_LIMIT_BYTES + 1),
}


@pytest.mark.parametrize("body", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_refused_in_bounded_time_and_memory(body):
    tracemalloc.start()
    began = time.thread_time()
    with pytest.raises(MalformedPush):
        Envelope.parse(body)
    spent, (_, peak) = time.thread_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert spent < 1.0
    assert peak < 4 * PUSH_LIMIT_BYTES


@given(st.binary(max_size=300))
def test_any_bytes_are_a_push_or_malformed(body):
    for parse in (Envelope.parse, Pushed.parse):
        with pytest.raises(MalformedPush):
            parse(body)


def test_an_answer_reads_back():
    answer = PushAnswer(result=PushResult.OLD_VERSION, message="m", boot_id="x", version=Version(1, 2))
    assert PushAnswer.model_validate_json(json.dumps(answer.to_dict()), strict=True, by_name=False) == answer


def test_every_refusal_has_a_status_that_is_none_of_success():
    assert [result for result, status in STATUSES.items() if status < 400] == [PushResult.APPLIED]
