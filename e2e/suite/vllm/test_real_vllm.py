"""An LLMBackend on real vLLM on CPU: ready, streamed, aborted, under KV pressure, drained.

Its metrics are read through the limiter.

vLLM is too large for an image: it lies in a folder of the host and reaches the pod, read-only, through a
PersistentVolume, under the path it was built for. The KV cache is made tiny, so a dozen requests do not fit in it.
"""

from __future__ import annotations

import json
import os
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from kubernetes import client

from e2e.suite.backends import ADMIN_PORT, NAMESPACE, Backend, wait_until
from e2e.suite.caller import Caller
from e2e.suite.streams import ending

pytestmark = pytest.mark.cluster

HOME = "/opt/vllm"
CLAIM = "vllm-cpu"
KV_BLOCKS = 12
SEATS = 16
PRESSURE_STREAMS = 12
PRESSURE_TOKENS = 400
ABORTED_TOKENS = 900
REST_SECONDS = 2.5
"""Two looks of the limiter at the engine's metrics."""

DRAIN_STREAMS = 4
DRAIN_TOKENS = 200
READY_TIMEOUT_SECONDS = 240


@pytest.fixture(scope="module")
def real(api: client.ApiClient, kubectl: Callable[..., Any]) -> Iterator[Backend]:
    """One replica of real vLLM, with its volume, removed at the end."""
    volume = {"metadata": {"name": CLAIM}, "apiVersion": "v1"}
    capacity = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    objects = [
        volume
        | {
            "kind": "PersistentVolume",
            "spec": capacity
            | {
                "capacity": {"storage": "10Gi"},
                "hostPath": {"path": os.environ["PENSTOCK_E2E_VLLM_HOME"], "type": "Directory"},
            },
        },
        volume
        | {
            "kind": "PersistentVolumeClaim",
            "spec": capacity
            | {
                "volumeName": CLAIM,
                "resources": {"requests": {"storage": "10Gi"}},
            },
        },
    ]
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    kubectl("apply", "-f", "-", stdin=manifest)
    kubectl("wait", "--for=jsonpath={.status.phase}=Bound", f"pvc/{CLAIM}", "--timeout=30s")
    spec = {
        "engine": {
            "type": "VLLM",
            "image": json.loads(os.environ["PENSTOCK_E2E_IMAGES"])["VLLM"],
            "version": "0.32.0",
            "contextLength": 1024,
            "maxConcurrency": SEATS,
            "vllm": {"enforceEager": True},
            "args": [f"--num-gpu-blocks-override={KV_BLOCKS}"],
            "env": [
                {"name": "VLLM_CPU_KVCACHE_SPACE", "value": "1"},
                {"name": "OMP_NUM_THREADS", "value": "1"},
                {"name": "HF_HUB_OFFLINE", "value": "1"},
            ],
        },
        "model": {"name": "tiny-llama", "source": {"persistentVolumeClaim": {"claimName": CLAIM, "path": "/model"}}},
        "replicas": 1,
        "resources": {"requests": {"cpu": "200m", "memory": "2Gi"}},
        "pod": {
            "volumes": [{"name": "engine", "persistentVolumeClaim": {"claimName": CLAIM, "readOnly": True}}],
            "volumeMounts": [{"name": "engine", "mountPath": HOME, "readOnly": True}],
            "sharedMemoryMebibytes": 512,
        },
        "drain": {"lameDuckSeconds": 2, "timeoutSeconds": 120},
    }
    backend = Backend(name="real-vllm", engine="VLLM", spec=spec, api=api)
    yield backend
    backend.delete()
    kubectl("delete", "--wait=false", "-f", "-", stdin=manifest)


def ask(backend: Backend, tokens: int) -> tuple[str, int]:
    """Stream exactly that many tokens; return the finish reason and what the engine counted."""
    speak = openai.OpenAI(base_url=f"{backend.url}/v1", api_key="none", max_retries=0, timeout=240)
    with speak.completions.create(
        model=backend.model,
        prompt="the quick brown fox",
        max_tokens=tokens,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    ) as stream:
        return ending(stream)


def engine_metric(backend: Backend, name: str) -> float:
    """Return one series of the engine's metrics, read where Prometheus reads them: at the limiter."""
    (pod,) = backend.pods()
    with urllib.request.urlopen(f"http://{pod.status.pod_ip}:{ADMIN_PORT}/engine/metrics", timeout=5) as answer:
        found = re.search(rf"^{re.escape(name)}\{{[^}}]*\}} (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found, f"no series {name}"
    return float(found[1])


def test_real_vllm_becomes_ready(real: Backend, record: Callable[..., None]) -> None:
    """As UID 2000 with a read-only root, from apply to Ready."""
    real.apply()
    seconds = real.wait_ready(timeout=READY_TIMEOUT_SECONDS)
    record("real vLLM: apply to Ready", seconds, unit="s")


def test_real_vllm_streams_through_the_service(real: Backend) -> None:
    """The official client gets every token it asked for."""
    assert ask(real, 32) == ("length", 32)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_client_that_leaves_is_aborted_in_real_vllm(real: Backend, stream: bool, record: Callable[..., None]) -> None:
    """It is at work on the request, then on nothing, and makes no token of it any more."""
    (pod,) = real.pods()
    wait_for_running(real, 0)
    before = engine_metric(real, "vllm:generation_tokens_total")
    caller = Caller(pod, model=real.model, prompt="the lazy dog", tokens=ABORTED_TOKENS, key="", stream=stream)
    wait_for_running(real, 1)
    if stream:
        wait_until(lambda: caller.tokens > 0, timeout=30, what=lambda: f"a token; {caller.over=}")
    assert not caller.over, "the answer is complete before anybody could leave"
    caller.leave()
    seconds = wait_for_running(real, 0)
    time.sleep(REST_SECONDS)
    made = engine_metric(real, "vllm:generation_tokens_total") - before
    time.sleep(REST_SECONDS)
    later = engine_metric(real, "vllm:generation_tokens_total") - before
    name = f"real vLLM: a client leaves {'its stream' if stream else 'before its whole answer'}"
    record(f"{name}: to the engine's metrics showing nothing at work", seconds, unit="s")
    record(
        f"{name}: tokens made",
        later,
        unit=f"of {ABORTED_TOKENS}",
        bar="fewer, and no more later",
        holds=made == later < ABORTED_TOKENS,
    )
    assert made == later < ABORTED_TOKENS
    assert real.in_flight() == 0


def wait_for_running(backend: Backend, count: int) -> float:
    """Wait until the engine says that it works on so many; return the seconds it took."""
    return wait_until(
        lambda: engine_metric(backend, "vllm:num_requests_running") == count,
        timeout=30,
        what=lambda: f"{count} at work; it says {engine_metric(backend, 'vllm:num_requests_running')}",
    )


def test_kv_pressure_shows_in_the_metrics_and_loses_nobody(real: Backend, record: Callable[..., None]) -> None:
    """More requests than the KV cache holds: preemptions, waiting, high usage, and every stream complete."""
    before = engine_metric(real, "vllm:num_preemptions_total")
    usage = waiting = 0.0
    with ThreadPoolExecutor(PRESSURE_STREAMS) as pool:
        streams = [pool.submit(ask, real, PRESSURE_TOKENS) for _ in range(PRESSURE_STREAMS)]
        while not all(stream.done() for stream in streams):
            usage = max(usage, engine_metric(real, "vllm:kv_cache_usage_perc"))
            waiting = max(waiting, engine_metric(real, "vllm:num_requests_waiting"))
            time.sleep(0.2)
        results = [stream.result() for stream in streams]
    wait_until(
        lambda: engine_metric(real, "vllm:num_preemptions_total") > before,
        timeout=5,
        what=lambda: "preemptions in the metrics",
    )
    preemptions = engine_metric(real, "vllm:num_preemptions_total") - before
    record("real vLLM: KV-cache usage at its highest", usage, unit="of 1", bar="> 0.7", holds=usage > 0.7)
    record("real vLLM: requests waiting at their highest", waiting, bar="> 0", holds=waiting > 0)
    record("real vLLM: preemptions", preemptions, bar="> 0", holds=preemptions > 0)
    assert results == [("length", PRESSURE_TOKENS)] * PRESSURE_STREAMS
    assert usage > 0.7
    assert waiting > 0


def test_streams_survive_the_end_of_their_replica(real: Backend, record: Callable[..., None]) -> None:
    """Open streams through the deletion of their only pod: all complete, and the backend comes back."""
    (pod,) = real.pods()
    with ThreadPoolExecutor(DRAIN_STREAMS) as pool:
        streams = [pool.submit(ask, real, DRAIN_TOKENS) for _ in range(DRAIN_STREAMS)]
        wait_until(lambda: real.in_flight() == DRAIN_STREAMS, timeout=30, what=lambda: "the streams to be in flight")
        client.CoreV1Api(real.api).delete_namespaced_pod(pod.metadata.name, NAMESPACE)
        results = [stream.result() for stream in streams]
    complete = results.count(("length", DRAIN_TOKENS))
    record(
        "real vLLM: streams complete through the end of their replica",
        complete,
        unit=f"of {DRAIN_STREAMS}",
        bar="all",
        holds=complete == DRAIN_STREAMS,
    )
    assert results == [("length", DRAIN_TOKENS)] * DRAIN_STREAMS
    real.wait_ready(timeout=READY_TIMEOUT_SECONDS)
