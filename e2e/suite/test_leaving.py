"""Clients that leave before their first token or before a whole answer: how soon their places are free, and truly.

vLLM is told at once. llama-server looks after a second in which it has made no token for anybody, and acts when the
batch of tokens at hand is worked off; the limiter then needs a look at its metrics. So the bar depends on how long this
machine takes for a batch, which is measured first. Beside a neighbour that streams, llama-server makes a whole answer
to its end, whoever has left; then all that can be promised is that nobody else is sent to that slot meanwhile.

One replica that works on two requests at a time, shared by the tests in their order, once per engine.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e.suite.backends import Backend, limiter_state, wait_until
from e2e.suite.caller import Caller
from e2e.suite.scrape import engine_load, limiter_total

pytestmark = pytest.mark.cluster

Record = Callable[..., None]

SLOTS = 2
CONTEXT_TOKENS = 4096
LONG_PROMPT_WORDS = 2000
"""Each is a token to the real model: four batches."""

BATCH_WORDS = 500
ANSWER_TOKENS = 400
ENDLESS_TOKENS = 3900
LEAVERS = 3
INTO_PROMPT_SECONDS = 0.5

NOTICE_SECONDS = 3.0
"""A second of silence, which the limiter's first look can begin anew, and the pause before its next look."""

SLOWER = 1.5
"""So much longer a batch may take than the one that was measured: it comes later in its prompt, on a shared machine."""

PATIENCE_SECONDS = 120.0

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def serving(backend: Backend) -> Iterator[Backend]:
    """Return the backend once its replica serves; remove it after the last test."""
    backend.name = f"{backend.name}-leaving"
    backend.spec["engine"] |= {"maxConcurrency": SLOTS, "contextLength": CONTEXT_TOKENS}
    backend.spec |= {"replicas": 1, "drain": {"lameDuckSeconds": 0, "timeoutSeconds": 30}}
    backend.apply()
    backend.wait_ready()
    yield backend
    backend.delete()
    wait_until(lambda: not backend.pods(running=False), timeout=60, what=lambda: "the replica to go")


@pytest.fixture
def start(serving: Backend) -> Iterator[Callable[..., Caller]]:
    """Ask the one replica, which is idle at first; who is still there is gone when the test is over."""
    (pod,) = serving.pods()
    callers: list[Caller] = []

    def ask(*, words: int, tokens: int = ANSWER_TOKENS, stream: bool = True) -> Caller:
        text = f"Chapter {next(_numbers)}:{' river' * words}"
        callers.append(Caller(pod, model=serving.model, prompt=text, tokens=tokens, key="", stream=stream))
        return callers[-1]

    wait_for_in_flight(pod, 0)
    yield ask
    for caller in callers:
        caller.leave()
    wait_for_in_flight(pod, 0)


def wait_for_in_flight(pod: Any, count: int) -> float:
    """Wait until the limiter counts so many at the engine; return the seconds it took."""
    return wait_until(
        lambda: limiter_state(pod)["inFlight"] == count,
        timeout=PATIENCE_SECONDS,
        what=lambda: f"{count} in flight; {limiter_state(pod)}",
    )


def wait_for_first_token(caller: Caller) -> float:
    """Wait until a stream has begun; return the seconds it took."""
    return wait_until(lambda: caller.tokens > 0, timeout=PATIENCE_SECONDS, what=lambda: f"a token; {caller.over=}")


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_client_that_leaves_in_its_prompt_frees_its_place(
    serving: Backend, start: Callable[..., Caller], stream: bool, record: Record
) -> None:
    """The engine stops working on the prompt, and the place is free when it has."""
    (pod,) = serving.pods()
    one = start(words=BATCH_WORDS, tokens=1)
    batch = wait_for_first_token(one)
    wait_for_in_flight(pod, 0)
    bar = NOTICE_SECONDS + SLOWER * batch
    slowest = 0.0
    for _ in range(LEAVERS):
        caller = start(words=LONG_PROMPT_WORDS, stream=stream)
        wait_for_in_flight(pod, 1)
        time.sleep(INTO_PROMPT_SECONDS)
        if serving.engine == "LlamaCpp":  # the stand-in for vLLM reads a prompt in no time
            assert (caller.tokens, caller.over) == (0, False), "the prompt is too short: it is read already"
        caller.leave()
        slowest = max(slowest, wait_for_in_flight(pod, 0))
    record(f"{serving.engine}: a batch of a prompt", batch, unit="s")
    record(
        f"{serving.engine}: a client leaves its prompt, {'streamed' if stream else 'whole'}: to its place being free",
        slowest,
        unit="s",
        bar=f"≤ {NOTICE_SECONDS:g} s and {SLOWER:g} batches",
        holds=slowest <= bar,
    )
    assert slowest <= bar
    assert given_up(pod) == 0


def test_a_client_that_leaves_before_its_whole_answer_frees_its_place(
    serving: Backend, start: Callable[..., Caller], record: Record
) -> None:
    """Alone, so that the engine is silent while it works: llama-server notices within seconds."""
    (pod,) = serving.pods()
    slowest = 0.0
    for _ in range(LEAVERS):
        caller = start(words=1, tokens=ENDLESS_TOKENS, stream=False)
        wait_for_in_flight(pod, 1)
        time.sleep(INTO_PROMPT_SECONDS)
        assert not caller.over
        caller.leave()
        slowest = max(slowest, wait_for_in_flight(pod, 0))
    holds = slowest <= NOTICE_SECONDS + 1
    record(
        f"{serving.engine}: a client leaves before its whole answer: to its place being free",
        slowest,
        unit="s",
        bar=f"≤ {NOTICE_SECONDS + 1:g} s",
        holds=holds,
    )
    assert holds
    assert given_up(pod) == 0


def test_a_place_that_the_engine_still_works_on_is_given_to_nobody(
    serving: Backend, start: Callable[..., Caller], record: Record
) -> None:
    """Beside a neighbour that streams, a whole answer nobody waits for: the next one gets its place when it is free."""
    (pod,) = serving.pods()
    neighbour = start(words=1, tokens=ENDLESS_TOKENS)
    wait_for_first_token(neighbour)
    left = start(words=1, stream=False)
    wait_for_in_flight(pod, SLOTS)
    following = start(words=1)
    wait_until(lambda: sum(limiter_state(pod)["waiting"].values()) == 1, timeout=10, what=lambda: "one to wait")
    left.leave()
    held_back: list[int] = []

    def served() -> bool:
        held_back.extend(load[1] for load in [engine_load(pod, serving.engine)] if load is not None)
        return following.tokens > 0

    seconds = wait_until(served, timeout=PATIENCE_SECONDS, what=lambda: f"the next one's turn; {limiter_state(pod)}")
    wait_until(lambda: engine_load(pod, serving.engine) == (SLOTS, 0), timeout=10, what=lambda: "figures of the engine")
    record(
        f"{serving.engine}: most requests the engine held back after a client left beside a busy neighbour",
        max(held_back),
        bar="none",
        holds=not any(held_back),
    )
    record(
        f"{serving.engine}: a client leaves a whole answer beside a busy neighbour: to the next one's token",
        seconds,
        unit="s",
    )
    assert not any(held_back)
    assert given_up(pod) == 0
    assert not neighbour.over


def given_up(pod: Any) -> float:
    """Return the permits that came back although the engine had not shown their slots free."""
    return limiter_total(pod, "penstock_permits_given_up_total")
