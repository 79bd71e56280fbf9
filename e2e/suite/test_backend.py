"""The main job, from `kubectl apply` to a streamed answer, a roll, a node drain and a delete.

The tests of this module follow one backend through its life, in order, once per engine.
"""

from __future__ import annotations

import datetime as dt
import re
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import openai
import pytest
from kubernetes import client
from openai.types.chat import ChatCompletionMessageParam

from e2e.suite.backends import NAMESPACE, SERVES, Backend, conditions, limiter_state, wait_until
from e2e.suite.streams import ending

pytestmark = pytest.mark.cluster

PROMPT: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say something about rivers."}]
STREAMS = 6
STREAM_TOKENS = 160
LOOK_UPS = 20


def speak(backend: Backend) -> openai.OpenAI:
    """Return the official client as a user sets it up, without retries: a refusal must show."""
    return openai.OpenAI(base_url=f"{backend.url}/v1", api_key="none", max_retries=0, timeout=120)


def first_token_times(backend: Backend, until: threading.Event) -> list[float]:
    """Ask for one token again and again from before the backend exists; return when the first one came."""
    while not until.is_set():
        try:
            with speak(backend).chat.completions.create(
                model=backend.model, messages=PROMPT, max_tokens=1, stream=True
            ) as stream:
                for _ in stream:
                    return [time.time()]
        except openai.APIError:
            time.sleep(0.05)
    return []


def test_a_backend_becomes_ready_and_answers_at_once(backend: Backend, record: Callable[..., None]) -> None:
    """The first token comes at most 3 s after the engine itself could serve: probes add no dead time."""
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(first_token_times, backend, stop)
        applied = time.monotonic()
        try:
            backend.apply()
            wait_until(first.done, timeout=120, what=lambda: f"a first token; Ready is {conditions(backend.read())}")
        finally:
            stop.set()
        token_at = first.result()[0]
    backend.wait_ready()
    record(f"{backend.engine}: apply to Ready, 2 replicas", time.monotonic() - applied, unit="s")
    served_at = min(engine_served_at(backend, pod) for pod in backend.pods())
    delay = token_at - served_at
    record(
        f"{backend.engine}: engine can serve to first token through the Service",
        delay,
        unit="s",
        bar="≤ 3 s",
        holds=delay <= 3,
    )
    assert delay <= 3


def engine_served_at(backend: Backend, pod: Any) -> float:
    """Return when the engine of this pod logged that it serves, in seconds since the epoch."""
    log = client.CoreV1Api(backend.api).read_namespaced_pod_log(
        pod.metadata.name, NAMESPACE, container="engine", timestamps=True
    )
    for line in log.splitlines():
        stamp, _, text = line.partition(" ")
        if SERVES[backend.engine] in text:
            whole, _, fraction = stamp.rstrip("Z").partition(".")
            seconds = dt.datetime.fromisoformat(whole).replace(tzinfo=dt.UTC).timestamp()
            return seconds + float(f"0.{fraction or 0}")
    pytest.fail(f"{pod.metadata.name} never logged {SERVES[backend.engine]!r}:\n{log[-2000:]}")


def test_status_tells_the_whole_state(backend: Backend) -> None:
    """Conditions, counts, selector and address are there, and nothing of the past remains."""
    found = backend.read()
    status = found["status"]
    assert conditions(found)["Ready"]["status"] == conditions(found)["Available"]["status"] == "True"
    assert not {"Reconciling", "Stalled"} & set(conditions(found))
    assert status["observedGeneration"] == found["metadata"]["generation"]
    assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (2, 2, 2)
    assert status["selector"]
    assert backend.name in status["url"]
    assert "finalizers" not in found["metadata"]
    assert not found["metadata"].get("annotations")


def test_the_official_client_streams_a_chat_completion(backend: Backend) -> None:
    """A stream comes as more than one chunk, ends with a finish reason, and carries text."""
    with speak(backend).chat.completions.create(
        model=backend.model, messages=PROMPT, max_tokens=24, temperature=0, stream=True
    ) as stream:
        chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert len(chunks) > 3
    assert text.strip()
    assert chunks[-1].choices[0].finish_reason in {"stop", "length"}


def test_both_replicas_get_requests(backend: Backend) -> None:
    """New connections are spread over the replicas by the Service."""
    for _ in range(16):
        speak(backend).chat.completions.create(model=backend.model, messages=PROMPT, max_tokens=1)
    admitted = [limiter_state(pod)["admitted"] for pod in backend.pods()]
    assert len(admitted) == 2
    assert min(admitted) > 0


CHILDREN = {
    "Service": (client.CoreV1Api, "service"),
    "ConfigMap": (client.CoreV1Api, "config_map"),
    "ServiceAccount": (client.CoreV1Api, "service_account"),
}


@pytest.mark.parametrize("kind", CHILDREN)
def test_a_deleted_child_returns(backend: Backend, record: Callable[..., None], kind: str) -> None:
    """A child that somebody deletes is back, as a new object, within half a second."""
    api_type, noun = CHILDREN[kind]
    api = api_type(backend.api)
    selector = f"app.kubernetes.io/managed-by=penstock,app.kubernetes.io/instance={backend.name}"
    before = getattr(api, f"list_namespaced_{noun}")(NAMESPACE, label_selector=selector).items
    assert before, f"no {kind} with {selector}"
    name, uid = before[0].metadata.name, before[0].metadata.uid
    getattr(api, f"delete_namespaced_{noun}")(name, NAMESPACE)
    started = time.monotonic()

    def returned() -> bool:
        try:
            return bool(getattr(api, f"read_namespaced_{noun}")(name, NAMESPACE).metadata.uid != uid)
        except client.ApiException as error:
            if error.status == 404:
                return False
            raise

    wait_until(returned, timeout=10, what=lambda: f"{kind} {name} to return")
    seconds = time.monotonic() - started
    record(f"{backend.engine}: deleted {kind} returns", seconds, unit="s", bar="< 0.5 s", holds=seconds < 0.5)
    assert seconds < 0.5
    if kind == "Service":
        wait_for_new_address(backend)


def wait_for_new_address(backend: Backend) -> None:
    """Wait until the name leads to the Service's new address, whoever answers, and the address to a replica.

    DNS servers keep the old address for up to 30 s, each in a cache of its own, and a look-up reaches any of them;
    kube-proxy may take a second or two to know a new address.
    """
    service: Any = client.CoreV1Api(backend.api).read_namespaced_service(backend.name, NAMESPACE)
    address = service.spec.cluster_ip
    host = backend.url.removeprefix("http://")

    def reachable() -> bool:
        try:
            socket.create_connection((address, 80), timeout=1).close()
        except OSError:
            return False
        return all(socket.gethostbyname(host) == address for _ in range(LOOK_UPS))

    wait_until(reachable, timeout=60, what=lambda: f"{host} to be {address}, and to answer")


def test_an_edited_child_is_set_right(backend: Backend) -> None:
    """What the operator owns in a child goes back to what the backend says.

    Not the pod template: the pod that an edit of it brings is deleted in the same second, and kubelet may keep such a
    pod, whose sidecar runs and whose engine was never started, for its whole grace period.
    """
    apps: Any = client.AppsV1Api(backend.api)
    before = apps.read_namespaced_deployment(backend.name, NAMESPACE).spec.progress_deadline_seconds
    apps.patch_namespaced_deployment(backend.name, NAMESPACE, {"spec": {"progressDeadlineSeconds": before + 1}})

    def right() -> bool:
        found = apps.read_namespaced_deployment(backend.name, NAMESPACE)
        return bool(found.spec.progress_deadline_seconds == before)

    wait_until(right, timeout=10, what=lambda: f"progressDeadlineSeconds to be {before} again")
    backend.wait_ready()


def test_an_edit_of_the_arguments_rolls_the_replicas(backend: Backend, record: Callable[..., None]) -> None:
    """A new argument reaches every replica through new pods, and streams open on the old ones complete."""
    before = {pod.metadata.uid for pod in backend.pods()}
    argument = "--no-warmup" if backend.engine == "LlamaCpp" else "--disable-uvicorn-access-log"
    backend.spec["engine"]["args"] = [argument]
    with ThreadPoolExecutor(STREAMS) as pool:
        streams = open_streams(pool, backend)
        started = time.monotonic()
        backend.apply()
        backend.wait_ready()
        record(f"{backend.engine}: roll of 2 replicas", time.monotonic() - started, unit="s")
        results = [stream.result(timeout=120) for stream in streams]
    assert_complete(results, f"{backend.engine}: streams complete through a roll", record)
    pods = backend.pods()
    assert before.isdisjoint(pod.metadata.uid for pod in pods)
    for pod in pods:
        engine = next(container for container in pod.spec.containers if container.name == "engine")
        assert argument in engine.args


def test_streams_survive_the_drain_of_their_node(
    backend: Backend, kubectl: Callable[..., Any], record: Callable[..., None]
) -> None:
    """Six open streams through `kubectl drain` of one node: all complete, to the last token."""
    with ThreadPoolExecutor(STREAMS) as pool:
        streams = open_streams(pool, backend)
        by_node = {pod.spec.node_name: limiter_state(pod)["inFlight"] for pod in backend.pods()}
        assert len(by_node) == 2, f"both replicas are on {list(by_node)}"
        node, held = max(by_node.items(), key=lambda item: item[1])
        started = time.monotonic()
        try:
            kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")
            seconds = time.monotonic() - started
            results = [stream.result(timeout=120) for stream in streams]
        finally:
            kubectl("uncordon", node)
    record(f"{backend.engine}: kubectl drain with {held} of {STREAMS} streams on the node", seconds, unit="s")
    assert_complete(results, f"{backend.engine}: streams complete through kubectl drain", record)
    assert held > 0, "no stream was on the drained node: the test proves nothing"
    backend.wait_ready()


def open_streams(pool: Executor, backend: Backend) -> list[Future[tuple[str, int]]]:
    """Start the long streams and return once all are in flight; one that fails before that fails the test."""
    streams = [pool.submit(long_stream, backend) for _ in range(STREAMS)]

    def all_open() -> bool:
        for stream in streams:
            if stream.done():
                pytest.fail(f"a stream ended before all were open: {stream.exception() or stream.result()}")
        return backend.in_flight() == STREAMS

    wait_until(all_open, timeout=60, what=lambda: f"{STREAMS} in flight, there are {backend.in_flight()}")
    return streams


def long_stream(backend: Backend) -> tuple[str, int]:
    """Stream exactly `STREAM_TOKENS` tokens; return the finish reason and the tokens the engine counted."""
    with speak(backend).chat.completions.create(
        model=backend.model,
        messages=PROMPT,
        max_tokens=STREAM_TOKENS,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    ) as stream:
        return ending(stream)


def assert_complete(results: list[tuple[str, int]], name: str, record: Callable[..., None]) -> None:
    """Record how many of the long streams came to their last token, and fail unless all did."""
    whole = ("length", STREAM_TOKENS)
    complete = results.count(whole)
    record(name, complete, unit=f"of {STREAMS}", bar="all", holds=complete == STREAMS)
    assert results == [whole] * STREAMS


def test_no_process_shows_a_traceback(backend: Backend, kubectl: Callable[..., Any]) -> None:
    """Neither the operator nor a limiter nor an engine has printed a traceback."""
    logs = {"operator": kubectl("-n", "penstock-system", "logs", "deployment/penstock-operator", "--tail=-1").stdout}
    for pod in backend.pods():
        for container in ("limiter", "engine"):
            logs[f"{pod.metadata.name}/{container}"] = kubectl("logs", pod.metadata.name, "-c", container).stdout
    assert {name: log for name, log in logs.items() if re.search(r"Traceback", log)} == {}


def test_delete_removes_everything(backend: Backend, kubectl: Callable[..., Any], record: Callable[..., None]) -> None:
    """`kubectl delete llmb` takes every child with it, and no finalizer holds anything up."""
    started = time.monotonic()
    kubectl("delete", "llmb", backend.name)
    selector = f"app.kubernetes.io/instance={backend.name}"

    def gone() -> bool:
        found = kubectl(
            "get",
            "deployments,replicasets,pods,services,configmaps,serviceaccounts,controllerrevisions,poddisruptionbudgets",
            "-l",
            selector,
            "-o",
            "name",
        )
        return not found.stdout.strip()

    wait_until(gone, timeout=60, what=lambda: "the children to go")
    record(f"{backend.engine}: delete to nothing left", time.monotonic() - started, unit="s")
