"""What happens to a client, scene by scene: each function brings one situation about and returns what came of it.

A scene's own promises, those that are the same for all clients, are asserted here: permits come back, headers are there
and true. What each client makes of it is in `table`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from e2e.beside.waiting import wait_for
from e2e.clients.client import Do
from e2e.clients.scripted import Trouble
from e2e.clients.stage import HOLDER, VOLUME_TOKENS, Play, Stage, key_of
from e2e.clients.tap import Tap

Scene = Callable[[Stage], Play]

RETRIES = 2
SHORT_SECONDS = 0.8
"""A time-out that an engine which hangs exceeds."""

QUEUE_SECONDS = 2.0
"""A time-out of which half may pass in the queue."""

DEADLINE_HEADER = "x-penstock-deadline-ms"


def whole(stage: Stage) -> Play:
    """An answer in one piece."""
    play = stage.ask("open")
    assert play.seen.text
    return play


def stream(stage: Stage) -> Play:
    """The same answer as a stream, to its last event: the same text."""
    same = {"messages": [{"role": "user", "content": "Play whole."}]}
    play = stage.ask("open", do=Do.STREAM, body=same)
    assert play.seen.text == stage.ask("open", body=same).seen.text
    return play


def malformed(stage: Stage) -> Play:
    """An argument of the wrong type: the limiter refuses the body, a retry cannot help."""
    return stage.ask_through_tap("open", body={"max_tokens": "many"}, retries=RETRIES)


def refused_by_engine(stage: Stage) -> Play:
    """A value that only the engine can judge: its own 400 passes through."""
    return stage.ask_through_tap("open", body={"temperature": -1.0}, retries=RETRIES)


def too_large_for_quota(stage: Stage) -> Play:
    """A prompt of more tokens than the quota ever lets pass: 400 and not 429, or the client would try for ever."""
    key = key_of(f"brief-{stage.scene}-{stage.client.name}")
    prompt = [{"role": "user", "content": "many words " * VOLUME_TOKENS}]
    return stage.ask_through_tap("quotas", key=key, body={"messages": prompt}, retries=RETRIES)


def unknown_key(stage: Stage) -> Play:
    """A key that nobody has."""
    return stage.ask_through_tap("open", key="sk-nobody", retries=RETRIES)


def unknown_path(stage: Stage) -> Play:
    """A path that is not on the allow-list: the error has the shape that the path's API has."""
    return stage.ask_through_tap("open", path=stage.client.unknown_path, retries=RETRIES)


def unknown_model(stage: Stage) -> Play:
    """A model that the engine does not have."""
    return stage.ask_through_tap("open", body={"model": "nobody"}, retries=RETRIES)


def over_quota(stage: Stage) -> Play:
    """A second request in a window for one, from a client that does not try again."""
    key = key_of(f"brief-{stage.scene}-{stage.client.name}")
    stage.use_up(key)
    play = stage.ask_through_tap("quotas", key=key)
    assert play.seen.headers["x-penstock-reason"] == "rate_limit_exceeded"
    assert float(play.seen.headers["retry-after-ms"]) <= 1000 * float(play.seen.headers["retry-after"])
    _check_quota_headers(play)
    return play


def over_quota_and_again(stage: Stage) -> Play:
    """The same from a client that tries again: it comes back when there is room, once, and is served."""
    key = key_of(f"brief-{stage.scene}-{stage.client.name}")
    stage.use_up(key)
    play = stage.ask_through_tap("quotas", key=key, retries=RETRIES)
    assert len({one.connection for one in play.tries}) == 1  # a refusal costs no connection
    return play


def over_long_quota(stage: Stage) -> Play:
    """The same with an hour to wait: a minute is told, as old SDKs take more for a mistake, and not to try again."""
    key = key_of(f"hourly-{stage.scene}-{stage.client.name}")
    stage.use_up(key)
    retries = RETRIES if stage.client.sdk else 0
    play = stage.ask_through_tap("quotas", key=key, retries=retries, sleeps_pass=True)
    assert all(one.told_seconds == 60 for one in play.tries)
    return play


def full(stage: Stage) -> Play:
    """A replica that has no place, in the engine or in the queue."""
    with stage.replicas.get("full").occupied(key_of(HOLDER)):
        play = stage.ask_through_tap("full")
    assert play.tries[0].told_seconds is not None
    return play


def full_as_429(stage: Stage) -> Play:
    """The same where `overloadStatus` is `TooManyRequests`."""
    with stage.replicas.get("full-429").occupied(key_of(HOLDER)):
        return stage.ask_through_tap("full-429")


def full_and_again(stage: Stage) -> Play:
    """The same, and a place becomes free while the client waits."""
    running = stage.replicas.get("full")
    with Tap(running.url) as tap:
        with running.occupied(key_of(HOLDER)):
            stage.client.begin(stage.task(tap.url, retries=RETRIES))
            tap.wait_for_answers(1)
        return Play(stage.client.end(), tap.tries, tap.pauses())


def no_retry_wanted(stage: Stage) -> Play:
    """A busy replica that takes no retries: `x-should-retry: false` ends those of an SDK."""
    with stage.replicas.get("no-retries").occupied(key_of(HOLDER)):
        play = stage.ask_through_tap("no-retries", retries=RETRIES)
    assert all(one.answer.get("x-should-retry") == "false" for one in play.tries[1:])
    return play


def draining(stage: Stage) -> Play:
    """A replica that is leaving: it says so and closes the connection."""
    play = stage.ask_through_tap("draining")
    assert play.tries[0].answer["connection"].lower() == "close"
    return play


def draining_and_again(stage: Stage) -> Play:
    """The same behind a Service, which sends a new connection to another replica."""
    other = stage.replicas.get("open").url
    with Tap(stage.replicas.get("draining").url) as tap:
        stage.client.begin(stage.task(tap.url, retries=RETRIES))
        tap.wait_for_answers(1)
        tap.lead_to(other)
        play = Play(stage.client.end(), tap.tries, tap.pauses())
    connections = [one.connection for one in play.tries]
    assert len(set(connections)) == len(connections)
    return play


def queued_too_long(stage: Stage) -> Play:
    """A queue that lasts: the refusal comes before the client's own time-out, which would say nothing.

    SDKs send their time-out along; others may send a deadline.
    """
    headers = {} if stage.client.sdk else {DEADLINE_HEADER: str(round(QUEUE_SECONDS * 500))}
    with stage.replicas.get("queue").occupied(key_of(HOLDER)):
        play = stage.ask_through_tap("queue", seconds=QUEUE_SECONDS, headers=headers)
    (one,) = play.tries
    assert one.answered is not None
    assert one.answered - one.sent >= QUEUE_SECONDS / 2 - 0.1
    return play


def engine_error(stage: Stage) -> Play:
    """An engine that answers 500, once: its answer passes through."""
    with stage.replicas.get("open").faulty(kind="error", times=1):
        return stage.ask_through_tap("open", retries=RETRIES)


def engine_lost(stage: Stage) -> Play:
    """An engine that closes the connection instead of an answer, once."""
    stage.replicas.get("scripted")
    stage.replicas.scripted.next = Trouble.CLOSE
    return stage.ask_through_tap("scripted", retries=RETRIES)


def engine_error_in_stream(stage: Stage) -> Play:
    """An engine that ends a stream with an error of its own: it passes through."""
    stage.replicas.get("scripted")
    stage.replicas.scripted.next = Trouble.ERROR_IN_STREAM
    play = stage.ask_through_tap("scripted", do=Do.STREAM, retries=RETRIES)
    assert play.seen.text == "We"
    return play


def engine_lost_in_stream(stage: Stage) -> Play:
    """An engine that closes the connection in the middle of a stream: the stream ends with an error, not just so."""
    with stage.replicas.get("open").faulty(kind="cut", times=1, tokens=4):
        play = stage.ask_through_tap("open", do=Do.STREAM, retries=RETRIES)
    stage.replicas.get("open").settle()
    assert play.seen.text
    return play


def abort_in_stream(stage: Stage) -> Play:
    """An engine that gives a request up: it says so in `finish_reason`, and no client takes it for an error."""
    with stage.replicas.get("open").faulty(kind="abort", times=1, tokens=4):
        return stage.ask("open", do=Do.STREAM)


def cancelled(stage: Stage) -> Play:
    """A client that leaves in the middle of a stream: its permit and its place in the engine are free at once."""
    running = stage.replicas.get("open")
    before = running.metric("penstock_cancelled_total")
    play = stage.ask("open", do=Do.LEAVE)
    wait_for(lambda: running.metric("penstock_cancelled_total") == before + 1, "cancelled request")
    return play


def timed_out(stage: Stage) -> Play:
    """An engine that hangs: each try is given up by the client, and gives its permit back."""
    running = stage.replicas.get("open")
    before = running.metric("penstock_cancelled_total")
    with running.faulty(kind="hang"):
        play = stage.ask_through_tap("open", seconds=SHORT_SECONDS, retries=1)
        running.settle()
    assert running.metric("penstock_cancelled_total") == before + len(play.tries)
    return play


def _check_quota_headers(play: Play) -> None:
    """See that both families of headers are there and say the same."""
    headers = play.seen.headers
    if "anthropic-ratelimit-requests-limit" in headers:
        limit, left = "anthropic-ratelimit-requests-limit", "anthropic-ratelimit-requests-remaining"
        reset = "anthropic-ratelimit-requests-reset"
    else:
        limit, left, reset = (f"x-ratelimit-{what}-requests" for what in ("limit", "remaining", "reset"))
    assert (headers[limit], headers[left]) == ("1", "0")
    assert headers[reset]
    assert '"pace";r=0' in headers["ratelimit"]
    assert '"pace";q=1' in headers["ratelimit-policy"]


SCENES: Final[tuple[Scene, ...]] = (
    whole,
    stream,
    malformed,
    refused_by_engine,
    too_large_for_quota,
    unknown_key,
    unknown_path,
    unknown_model,
    over_quota,
    over_quota_and_again,
    over_long_quota,
    full,
    full_as_429,
    full_and_again,
    no_retry_wanted,
    draining,
    draining_and_again,
    queued_too_long,
    engine_error,
    engine_lost,
    engine_error_in_stream,
    engine_lost_in_stream,
    abort_in_stream,
    cancelled,
    timed_out,
)
