"""Admission at a full replica: who waits, who is refused, and what changes while requests run.

One replica that works on two requests at a time, with API keys, shared by the tests in their order, once per engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import openai
import pytest
from kubernetes import client

from e2e.suite.asking import complete, prompt, speak, status
from e2e.suite.backends import NAMESPACE, Backend, conditions, limiter_state, wait_until
from e2e.suite.caller import Caller
from e2e.suite.files import wait_for_files
from e2e.suite.scrape import engine_load, limiter_total

pytestmark = pytest.mark.cluster

Record = Callable[..., None]

SLOTS = 2
CLIENTS = 12
CLIENT_TOKENS = 32
DRAINED_CLIENTS = 6
DRAINED_TOKENS = 48
ENDLESS_TOKENS = 4000
"""More than any test waits for; whoever asks for them leaves before."""

FREED_SECONDS = 4.0
"""llama-server notices within this time that its client has left."""

QUOTA = 2

KEYS = {"calm": "calm-key-1", "metered": "metered-key-1"}
CALM, METERED = KEYS.values()
NEW_KEY = "calm-key-2"

TENANTS: dict[str, Any] = {
    "classes": [
        {"name": "metered", "tenants": ["metered"], "rateLimits": [{"name": "few", "limit": QUOTA}]},
    ],
}


@pytest.fixture(scope="module")
def serving(backend: Backend, api: client.ApiClient) -> Iterator[Backend]:
    """Return the backend once its replica serves; remove it, and wait until it is gone, after the last test."""
    core = client.CoreV1Api(api)
    backend.name = f"{backend.name}-admission"
    backend.spec["engine"] |= {"maxConcurrency": SLOTS, "contextLength": ENDLESS_TOKENS + 96}
    backend.spec |= {
        "replicas": 1,
        # No lame duck: the drain of a full replica begins while its queue is still long.
        "drain": {"lameDuckSeconds": 0, "timeoutSeconds": 120},
        "admission": {"queue": {"maxWaitSeconds": 120}, "priorityClasses": [{"name": "normal", "maxWaitSeconds": 120}]},
        "tenants": {**TENANTS, "keysSecretRef": {"name": backend.name}},
    }
    core.create_namespaced_secret(
        NAMESPACE, client.V1Secret(metadata=client.V1ObjectMeta(name=backend.name), string_data=KEYS)
    )
    try:
        backend.apply()
        backend.wait_ready()
        yield backend
    finally:
        backend.delete()
        core.delete_namespaced_secret(backend.name, NAMESPACE)
    wait_until(lambda: not backend.pods(running=False), timeout=60, what=lambda: "the replica to go")


@pytest.fixture
def pod(serving: Backend) -> Any:
    """Return the one replica, with nothing in flight."""
    (one,) = serving.pods()
    wait_for_load(one, waiting=0, running=0)
    return one


@pytest.fixture
def endless(serving: Backend, pod: Any) -> Iterator[Callable[[], Caller]]:
    """Start answers that do not end by themselves; they are left when the test is over."""
    callers: list[Caller] = []

    def start() -> Caller:
        callers.append(Caller(pod, model=serving.model, prompt=prompt(), tokens=ENDLESS_TOKENS, key=CALM))
        return callers[-1]

    yield start
    for caller in reversed(callers):
        caller.leave()


def start_clients(pool: Executor, serving: Backend, *, clients: int, tokens: int) -> list[Future[tuple[str, int]]]:
    """Start so many streams at once."""
    one = speak(serving, CALM)
    return [pool.submit(complete, one, serving.model, tokens) for _ in range(clients)]


def outcomes(streams: list[Future[tuple[str, int]]]) -> list[Any]:
    """Return what became of each stream, an error in its place where it failed."""
    return [stream.exception() or stream.result() for stream in streams]


def waits_and_runs(pod: Any) -> tuple[int, int]:
    """Return how many requests wait and how many are at the engine, as the limiter says at `/state`."""
    state = limiter_state(pod)
    return sum(state["waiting"].values()), state["inFlight"]


def wait_for_load(pod: Any, *, waiting: int, running: int) -> None:
    """Wait until so many requests wait, and so many are at the engine."""
    wait_until(
        lambda: waits_and_runs(pod) == (waiting, running),
        timeout=10,
        what=lambda: f"{waiting} to wait and {running} to run; there are {waits_and_runs(pod)}",
    )


def life(pod: Any, api: client.ApiClient) -> tuple[str, int]:
    """Return what changes when a replica is replaced or one of its containers restarts."""
    found: Any = client.CoreV1Api(api).read_namespaced_pod(pod.metadata.name, NAMESPACE)
    containers = (*found.status.init_container_statuses, *found.status.container_statuses)
    return found.metadata.uid, sum(one.restart_count for one in containers)


def wait_for_more(caller: Caller) -> None:
    """Wait until a stream has brought another chunk after this moment."""
    before = caller.tokens
    wait_until(
        lambda: caller.tokens > before,
        timeout=10,
        what=lambda: f"more than {before} tokens; over: {caller.over}, finish reason: {caller.finish!r}",
    )


def test_the_engine_has_no_more_than_it_can_work_on_and_all_are_served(
    serving: Backend, pod: Any, record: Record
) -> None:
    """Twelve at once for two slots: ten wait in front of the engine, none inside it, and each is served whole."""
    engine: list[tuple[int, int]] = []
    limiter: list[tuple[int, int]] = []
    depths: list[float] = []
    granted = {"class": "normal", "outcome": "granted"}
    before = [limiter_total(pod, name) for name in ("penstock_admitted_total", "penstock_finished_total")]
    with ThreadPoolExecutor(CLIENTS) as pool:
        streams = start_clients(pool, serving, clients=CLIENTS, tokens=CLIENT_TOKENS)
        while not all(stream.done() for stream in streams):
            limiter.append(waits_and_runs(pod))
            depths.append(limiter_total(pod, "penstock_queue_depth", **{"class": "normal"}))
            engine += filter(None, [engine_load(pod, serving.engine)])
            time.sleep(0.1)
        results = outcomes(streams)
    after = [limiter_total(pod, name) for name in ("penstock_admitted_total", "penstock_finished_total")]
    served, most = results.count(("length", CLIENT_TOKENS)), max(map(sum, engine), default=0)
    name = f"{serving.engine}: {CLIENTS} clients for {SLOTS} slots"
    record(f"{name}: served whole", served, unit=f"of {CLIENTS}", bar="all", holds=served == CLIENTS)
    record(f"{name}: most requests in the engine", most, bar=f"≤ {SLOTS}", holds=most <= SLOTS)
    record(f"{name}: most requests in the queue", max(depths))
    assert results == [("length", CLIENT_TOKENS)] * CLIENTS
    assert most <= SLOTS
    assert (SLOTS, 0) in engine, f"the engine was never seen full, so its figures prove nothing: {engine}"
    assert max(running for _, running in limiter) == SLOTS
    assert max(waiting for waiting, _ in limiter) > CLIENTS // 2
    assert max(depths) > CLIENTS // 2
    assert limiter_total(pod, "penstock_queue_wait_seconds_count", **granted) > CLIENTS // 2
    assert [now - then for now, then in zip(after, before, strict=True)] == [CLIENTS, CLIENTS]
    assert limiter_total(pod, "penstock_permit_drift") == 0


def test_clients_that_leave_free_their_places(
    serving: Backend, pod: Any, endless: Callable[[], Caller], record: Record
) -> None:
    """One leaves the queue, and the one behind it moves up; one leaves while it streams, and the next one starts."""
    before = limiter_total(pod, "penstock_admitted_total")
    streaming = [endless(), endless()]
    wait_until(
        lambda: all(caller.tokens for caller in streaming), timeout=20, what=lambda: "tokens of both that may go"
    )
    first = endless()
    wait_for_load(pod, waiting=1, running=SLOTS)
    second = endless()
    wait_for_load(pod, waiting=2, running=SLOTS)

    started = time.monotonic()
    first.leave()
    wait_for_load(pod, waiting=1, running=SLOTS)
    left_queue = time.monotonic() - started
    assert second.status is None

    started = time.monotonic()
    streaming[0].leave()
    wait_until(lambda: second.tokens > 0, timeout=20, what=lambda: f"the next one's turn; {limiter_state(pod)}")
    left_stream = time.monotonic() - started

    bar = {"unit": "s", "bar": f"≤ {FREED_SECONDS:g} s"}
    name = f"{serving.engine}: a client leaves"
    record(f"{name} the queue: to its place being free", left_queue, **bar, holds=left_queue <= FREED_SECONDS)
    record(f"{name} its stream: to the next one's first token", left_stream, **bar, holds=left_stream <= FREED_SECONDS)
    assert left_queue <= FREED_SECONDS
    assert left_stream <= FREED_SECONDS
    assert limiter_total(pod, "penstock_admitted_total") - before == 3, "who has left the queue was let in"
    assert not streaming[1].over


def test_only_known_keys_are_let_in(serving: Backend, pod: Any) -> None:
    """No key and a wrong key get 401, from the official client's view an `AuthenticationError`; a key gets 200."""
    before = limiter_total(pod, "penstock_admitted_total")
    assert status(serving, None) == 401
    with pytest.raises(openai.AuthenticationError) as refused:
        complete(speak(serving, "no-such-key"), serving.model, 1)
    assert refused.value.code == "unauthorized"
    assert limiter_total(pod, "penstock_admitted_total") == before
    assert complete(speak(serving, CALM), serving.model, 1) == ("length", 1)


def test_the_quota_of_one_tenant_is_no_other_tenants(serving: Backend, pod: Any) -> None:
    """Who has used up its quota gets 429 and is told when to come back; the other one goes on."""
    del pod  # only to begin with an idle one
    metered = speak(serving, METERED)
    for _ in range(QUOTA):
        complete(metered, serving.model, 1)
    with pytest.raises(openai.RateLimitError) as refused:
        complete(metered, serving.model, 1)
    headers = refused.value.response.headers
    assert refused.value.code == "rate_limit_exceeded"
    assert 1 <= int(headers["retry-after"]) <= 45  # the window, and what is added so that not all come back at once
    assert (headers["x-ratelimit-limit-requests"], headers["x-ratelimit-remaining-requests"]) == (str(QUOTA), "0")
    assert headers["x-ratelimit-reset-requests"].endswith("s")
    assert [status(serving, CALM) for _ in range(QUOTA + 1)] == [200] * (QUOTA + 1)


def test_a_changed_secret_takes_effect_without_a_restart(
    serving: Backend, pod: Any, api: client.ApiClient, record: Record
) -> None:
    """The old key is nobody's and the new one is the tenant's, at the same replica, in the same processes."""
    core, before = client.CoreV1Api(api), life(pod, api)

    def swap(key: str, *, for_: str) -> float:
        core.patch_namespaced_secret(serving.name, NAMESPACE, {"stringData": {"calm": key}})
        seconds = wait_for_files(pod, api, lambda: status(serving, key) == 200, what="the changed key to be known")
        assert status(serving, for_) == 401
        return seconds

    assert status(serving, NEW_KEY) == 401
    try:
        seconds = swap(NEW_KEY, for_=CALM)
    finally:
        swap(CALM, for_=NEW_KEY)
    record(f"{serving.engine}: changed Secret to known key, the kubelet told to look", seconds, unit="s")
    assert life(pod, api) == before


def test_an_edited_policy_takes_effect_around_a_running_stream(
    serving: Backend, pod: Any, endless: Callable[[], Caller], api: client.ApiClient, record: Record
) -> None:
    """A lower limit, then shadow mode: the same replica follows, and the stream that was open all the time goes on."""
    enforced, before = serving.spec["admission"], life(pod, api)

    def edit(*, what: str, **admission: Any) -> float:
        serving.spec["admission"] = enforced | admission
        serving.apply()
        maximum = admission.get("concurrency", {}).get("maximum", SLOTS)

        def in_force() -> bool:
            state = limiter_state(pod)
            return (state["limit"]["value"], state["mode"]) == (maximum, admission.get("mode", "Enforce"))

        return wait_for_files(pod, api, in_force, what=what)

    try:
        stream = endless()
        wait_for_more(stream)
        seconds = edit(what="a limit of 1", concurrency={"maximum": 1})
        record(f"{serving.engine}: edited policy to limit in force, the kubelet told to look", seconds, unit="s")
        wait_for_more(stream)
        waiting = endless()
        wait_for_load(pod, waiting=1, running=1)
        waiting.leave()

        edit(what="shadow mode", concurrency={"maximum": 1}, mode="Shadow")
        wait_for_more(stream)
        assert_shadow_refuses_nothing(serving, pod, endless)
        wait_for_more(stream)
    finally:
        edit(what="the first policy")
    wait_for_more(stream)
    assert not stream.over
    assert life(pod, api) == before
    assert conditions(serving.read())["Ready"]["status"] == "True"


def assert_shadow_refuses_nothing(serving: Backend, pod: Any, endless: Callable[[], Caller]) -> None:
    """Everyone is let in, above every limit, and what would have been refused is counted."""
    assert status(serving, None) == 200
    before = limiter_total(pod, "penstock_shed_total", reason="quota")
    assert [status(serving, METERED) for _ in range(QUOTA + 1)] == [200] * (QUOTA + 1)
    assert limiter_total(pod, "penstock_shed_total", reason="quota") > before
    crowd = [endless() for _ in range(SLOTS + 1)]
    # One is at the engine before. Now the engine itself must hold requests back, and its figures must show that.
    wait_until(
        lambda: (found := engine_load(pod, serving.engine)) is not None and found[0] == SLOTS and found[1] > 0,
        timeout=15,
        what=lambda: f"the engine to hold requests back; it says {engine_load(pod, serving.engine)}",
    )
    assert limiter_state(pod)["inFlight"] == 1 + len(crowd)
    for caller in crowd:
        caller.leave()


def test_a_drain_cuts_neither_those_that_stream_nor_those_that_wait(
    serving: Backend, pod: Any, api: client.ApiClient, record: Record
) -> None:
    """A deleted replica serves whom it has taken in, the queue included, to the last token before it goes."""
    with ThreadPoolExecutor(DRAINED_CLIENTS) as pool:
        streams = start_clients(pool, serving, clients=DRAINED_CLIENTS, tokens=DRAINED_TOKENS)
        wait_for_load(pod, waiting=DRAINED_CLIENTS - SLOTS, running=SLOTS)
        client.CoreV1Api(api).delete_namespaced_pod(pod.metadata.name, NAMESPACE)
        wait_until(
            lambda: limiter_state(pod)["drain"] == "draining", timeout=10, what=lambda: "the replica to be draining"
        )
        waiting, _ = waits_and_runs(pod)
        results = outcomes(streams)
    whole = results.count(("length", DRAINED_TOKENS))
    record(
        f"{serving.engine}: requests complete through a drain that begins with a queue",
        whole,
        unit=f"of {DRAINED_CLIENTS}",
        bar="all",
        holds=whole == DRAINED_CLIENTS,
    )
    assert results == [("length", DRAINED_TOKENS)] * DRAINED_CLIENTS
    assert waiting > 0, "nobody waited any more when the drain began: the test proves nothing"
