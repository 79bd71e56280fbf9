"""What is fuzzed without a connection: heads, framing, the watch for usage, and the reading of bodies.

A target is given chance and raises when a promise is broken: `AssertionError` for a wrong result, and whatever else
comes out that is none of the errors that are part of the contract.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

from bench.limiter.mutation import mutated, pieces
from bench.limiter.pairs import talk
from bench.limiter.parties import answer_bytes, ask_bytes
from penstock.limiter.amendment import with_usage
from penstock.limiter.body import read_wish
from penstock.limiter.framing import Body, FramingError, body_of
from penstock.limiter.head import CHUNKED, ResponseError, early_fault, find_end, parse_request, parse_response
from penstock.limiter.headers import client_head, engine_head
from penstock.limiter.refusal import Refused
from penstock.limiter.usage import UsageWatch
from penstock.limiter.wish import KINDS, Kind

GENERATED = 40
METHODS = (b"GET", b"HEAD", b"POST")
STREAM_KINDS = (Kind.CHAT, Kind.COMPLETIONS)

_PAIRS = [pair for number in range(GENERATED) for pair in talk(0, number).pairs]
REQUESTS = [b"".join(ask_bytes(ask)) for ask, _ in _PAIRS]
ANSWERS = [answer_bytes(answer, head_only=False, usage=True) for _, answer in _PAIRS]
BODIES = [ask.body for ask, _ in _PAIRS if ask.body]
STREAMS = [
    answer.payload.replace(b"data: [DONE]", answer.usage + b"data: [DONE]")
    for _, answer in _PAIRS
    if answer.payload.startswith((b"data:", b": a"))
]
FIRST_EVENT = b'data: {"choices":[{"delta":{"role":"assistant"},"finish_reason":null}]}\n\n'
CHUNKED_BODIES = [ask_bytes(ask)[1] for ask, _ in _PAIRS if ask.chunks]


def head(chance: random.Random) -> None:
    """Requests' heads are refused or read, also piece by piece, and what is read is sent on as one valid head."""
    data = mutated(chance, _short(chance, REQUESTS), REQUESTS)
    end = find_end(data)
    early: Refused | None = None
    try:
        early_fault(data[: chance.randrange(1, max(2, len(data) if end < 0 else end))] or b"G")
    except Refused as refused:
        early = refused
    if end < 0:
        return
    try:
        found = parse_request(data[:end])
    except Refused:
        return
    assert early is None, f"a valid head was refused early: {early}"
    sent = engine_head(found, target=b"/x", host=b"h:1", attempt_id=b"1", body_bytes=3)
    again = parse_request(sent)
    assert (again.length, find_end(sent)) == (3, len(sent)), "the engine's head can be read in another way"


def answer_head(chance: random.Random) -> None:
    """Engines' heads are an error or read, and what is read is sent on as one valid head."""
    data = mutated(chance, _short(chance, ANSWERS), ANSWERS)
    end = find_end(data)
    if end < 0:
        return
    try:
        found = parse_response(data[:end], method=chance.choice(METHODS))
    except ResponseError:
        return
    sent = client_head(found, shown_id=b"1", close=chance.random() < 0.5, unchunk=False)
    assert find_end(sent) == len(sent), "the client's head has two ends"
    again = parse_response(sent, method=b"GET")
    assert found.length in {0, again.length}, "the client's head tells another length"


def framing(chance: random.Random) -> None:
    """A body ends at the same place with the same payload wherever its reads are cut."""
    data = mutated(chance, _short(chance, CHUNKED_BODIES), CHUNKED_BODIES)
    whole = _follow(body_of(CHUNKED), [data])
    cut = _follow(body_of(CHUNKED), pieces(chance, data))
    assert whole[0] == cut[0], f"{whole[0]} in one read, {cut[0]} in pieces"
    if whole[0] == "done":
        assert whole == cut, "another end or another payload in pieces"


def usage(chance: random.Random) -> None:
    """The watch takes out one usage event or nothing, and it sees the same wherever its reads are cut."""
    data = mutated(chance, _short(chance, STREAMS), STREAMS)
    kind = chance.choice(STREAM_KINDS)
    first = FIRST_EVENT if chance.random() < 0.5 else b""  # behind it whole reads are counted without a look
    cuts = pieces(chance, data)
    seen = []
    for reads in ([first, data], [first, *cuts]):
        watch = UsageWatch(kind, stream=True, remove_usage=True)
        kept = b"".join(watch.feed(read) for read in reads if read) + watch.end()
        if watch.removed:
            _look_at_removed(first + data, kept)
        else:
            assert kept == first + data, "bytes were lost without an event taken out"
        assert watch.removed <= 1, "more than one event was taken out"
        seen.append((kept, watch.removed, watch.prompt_tokens, watch.output_tokens, watch.chunks, watch.aborted))
    if len(data) < 8 * 1024:  # beyond that what is held back depends on the reads
        assert seen[0] == seen[1], f"{seen[0][1:]} in one read, {seen[1][1:]} in pieces"
    silent = UsageWatch(chance.choice(list(Kind)), stream=chance.random() < 0.5)
    assert b"".join(map(silent.feed, cuts)) + silent.end() == data, "a watch changed what it watched"


def body(chance: random.Random) -> None:
    """Bodies are refused or read, and asking for usage changes nothing else."""
    data = mutated(chance, _short(chance, BODIES), BODIES)
    path = chance.choice(list(KINDS))
    try:
        wish = read_wish(path, data)
    except Refused:
        return
    if wish.kind in STREAM_KINDS and wish.can_add_usage:
        _look_at_amended(data)


TARGETS: dict[str, Callable[[random.Random], None]] = {
    "head": head,
    "answer-head": answer_head,
    "framing": framing,
    "usage": usage,
    "body": body,
}


def _short(chance: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Return an entry, mostly a small one: they are tried faster and break as well."""
    return min(chance.sample(corpus, 3), key=len) if chance.random() < 0.9 else chance.choice(corpus)


def _follow(follower: Body, reads: Sequence[bytes]) -> tuple[str, int, bytes]:
    payload: list[bytes] = []
    used = 0
    for read in reads:
        try:
            used += follower.feed(read, payload.append)
        except FramingError:
            return "broken", 0, b""
        if follower.done:
            return "done", used, b"".join(payload)
    return "open", used, b""


def _look_at_removed(data: bytes, kept: bytes) -> None:
    lost = len(data) - len(kept)
    begin = next((index for index in range(len(kept)) if data[index] != kept[index]), len(kept))
    assert data[begin + lost :] == kept[begin:], "more than one place of the stream was changed"
    around = data[max(0, begin - lost) : begin + 2 * lost]
    assert b'"usage"' in around or b"\\u" in around, "what was taken out is no usage event"


def _look_at_amended(data: bytes) -> None:
    amended = with_usage(data)
    before, after = json.loads(data), json.loads(amended)
    options = before.pop("stream_options", None) or {}
    got = after.pop("stream_options")
    assert before == after, "asking for usage changed the request"
    assert got.pop("include_usage") is True, "usage was not asked for"
    for told in (options, got):
        told.pop("include_usage", None)
        told.pop("continuous_usage_stats", None)
    assert options == got, "asking for usage changed the options"
