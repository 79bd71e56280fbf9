"""Models from a hub on a real cluster: one download for all replicas, none for a restart, causes that users can read.

The hub is `e2e/hub`, in the network of the first node, where pods of both nodes reach it. The shared claim is a folder
of the machine, which both nodes mount: it stands in for a network file system, locks included.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from kubernetes import client

from e2e.cluster.network import node_address
from e2e.fakevllm import model as tiny_llama
from e2e.hub import Hub, Repository
from e2e.images import llamacpp_image
from e2e.suite.backends import NAMESPACE, Backend, conditions, wait_until

pytestmark = pytest.mark.cluster

GGUF = "acme/smollm2-gguf"
SNAPSHOT = "acme/tiny-llama"
PRIVATE = "acme/private"
GATED = "acme/gated"
TOKEN = "hf_friend"
SOURCES: dict[str, dict[str, str]] = {
    "LlamaCpp": {"repository": GGUF, "file": "smollm2.gguf"},
    "VLLM": {"repository": SNAPSHOT},
}
WEIGHTS = {"LlamaCpp": (GGUF, "smollm2.gguf"), "VLLM": (SNAPSHOT, "model.safetensors")}
REPLICAS = 3
CAUSE_SECONDS = 60
TOLD_SECONDS = 10
RECOVERY_SECONDS = 120
END_SECONDS = 20

_number = itertools.count(1)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    folder = tmp_path_factory.mktemp("tiny-llama")
    tiny_llama.write(folder)
    weights = {"smollm2.gguf": llamacpp_image.model() / "smollm2.gguf"}
    repositories = [
        Repository(GGUF, weights),
        Repository(SNAPSHOT, folder),
        Repository(PRIVATE, folder, tokens=(TOKEN,)),
        Repository(GATED, folder, tokens=(TOKEN,), gated=True),
    ]
    with Hub(repositories, address=node_address(1), tokens=["hf_stranger"]) as running:
        yield running


@pytest.fixture(autouse=True)
def forgetful(hub: Hub) -> None:
    hub.requests.clear()


@pytest.fixture
def claim(api: client.ApiClient, tmp_path: Path) -> Iterator[str]:
    """Make a claim that pods of every node share, and return its name."""
    folder = tmp_path / "claim"
    folder.mkdir()
    folder.chmod(0o777)
    core, name = client.CoreV1Api(api), f"models-{next(_number)}"
    capacity, modes, metadata = {"storage": "1Gi"}, ["ReadWriteMany"], client.V1ObjectMeta(name=name)
    volume = client.V1PersistentVolumeSpec(
        access_modes=modes,
        capacity=capacity,
        claim_ref=client.V1ObjectReference(namespace=NAMESPACE, name=name),
        host_path=client.V1HostPathVolumeSource(path=str(folder), type="Directory"),
        persistent_volume_reclaim_policy="Retain",
        storage_class_name="",
    )
    wanted = client.V1PersistentVolumeClaimSpec(
        access_modes=modes,
        resources=client.V1VolumeResourceRequirements(requests=capacity),
        storage_class_name="",
        volume_name=name,
    )
    core.create_persistent_volume(client.V1PersistentVolume(metadata=metadata, spec=volume))
    core.create_namespaced_persistent_volume_claim(
        NAMESPACE, client.V1PersistentVolumeClaim(metadata=metadata, spec=wanted)
    )
    yield name
    core.delete_namespaced_persistent_volume_claim(name, NAMESPACE)
    core.delete_persistent_volume(name)


@pytest.fixture
def serve(api: client.ApiClient, hub: Hub) -> Iterator[Callable[..., Backend]]:
    """Apply a backend whose model comes from the hub; it is gone at the end, and so are its pods."""
    made: list[Backend] = []

    def apply(engine: str = "VLLM", *, cache: str | None = None, replicas: int = 1, **source: Any) -> Backend:
        image = json.loads(os.environ["PENSTOCK_E2E_IMAGES"])[engine]
        one = Backend.for_engine(engine, image=image, api=api)
        one.name = f"hub-{next(_number)}"
        one.spec["replicas"] = replicas
        one.spec["drain"] = {"lameDuckSeconds": 0, "timeoutSeconds": 5}
        one.spec["model"]["source"] = {"huggingFace": {"endpoint": hub.url, **SOURCES[engine], **source}}
        if cache is not None:
            one.spec["model"]["cache"] = {"persistentVolumeClaim": {"claimName": cache}}
        one.apply()
        made.append(one)
        return one

    yield apply
    for one in made:
        one.delete()
        gone(one)


def gone(backend: Backend) -> float:
    return wait_until(
        lambda: not backend.pods(running=False), timeout=90, what=lambda: f"the end of {backend.name}'s pods"
    )


def complete(backend: Backend) -> str:
    """Ask the backend for a few tokens and return the text."""
    with openai.OpenAI(base_url=f"{backend.url}/v1", api_key="none", max_retries=0, timeout=60) as speaker:
        answer = speaker.completions.create(model=backend.model, prompt="The capital of France is", max_tokens=4)
    return answer.choices[0].text


def ready_message(backend: Backend) -> str:
    return str(conditions(backend.read()).get("Ready", {}).get("message", ""))


def download_log(backend: Backend, pod: Any) -> str:
    return str(
        client.CoreV1Api(backend.api).read_namespaced_pod_log(pod.metadata.name, NAMESPACE, container="download")
    )


@pytest.mark.parametrize("engine", list(SOURCES))
def test_three_replicas_download_once_and_start_again_without_the_hub(
    engine: str, serve: Callable[..., Backend], hub: Hub, claim: str, record: Callable[..., None]
) -> None:
    """The claim is filled by one replica; a new pod needs no hub, whatever the hub does."""
    backend = serve(engine, cache=claim, replicas=REPLICAS)
    record(f"{engine}: apply to Ready, {REPLICAS} replicas, model from a hub", backend.wait_ready(), unit="s")
    assert complete(backend)
    downloads = hub.downloads(*WEIGHTS[engine])
    record(f"{engine}: downloads for {REPLICAS} replicas", downloads, bar="= 1", holds=downloads == 1)
    assert downloads == 1
    logs = [download_log(backend, pod) for pod in backend.pods()]
    assert sum("all checksums are right" in log for log in logs) == 1
    assert sum("is there: commit" in log for log in logs) == REPLICAS - 1

    repository = hub.repositories.pop(SOURCES[engine]["repository"])
    hub.requests.clear()
    try:
        leaving = backend.pods()[0].metadata.name
        client.CoreV1Api(backend.api).delete_namespaced_pod(leaving, NAMESPACE)
        wait_until(
            lambda: leaving not in {pod.metadata.name for pod in backend.pods(running=False)},
            timeout=90,
            what=lambda: f"the end of {leaving}",
        )
        backend.wait_ready()
        assert len(backend.pods()) == REPLICAS
        assert hub.requests == []
    finally:
        hub.repositories[repository.name] = repository


def test_without_a_cache_each_replica_downloads(serve: Callable[..., Backend], hub: Hub) -> None:
    backend = serve(replicas=2)
    backend.wait_ready()
    assert complete(backend)
    assert hub.downloads(*WEIGHTS["VLLM"]) == 2


def test_a_token_opens_a_private_repository_and_stays_with_the_download(
    serve: Callable[..., Backend], hub: Hub, api: client.ApiClient
) -> None:
    core, secret = client.CoreV1Api(api), f"hub-token-{next(_number)}"
    metadata = client.V1ObjectMeta(name=secret)
    core.create_namespaced_secret(NAMESPACE, client.V1Secret(metadata=metadata, string_data={"token": TOKEN}))
    try:
        backend = serve(repository=PRIVATE, tokenSecretRef={"name": secret})
        backend.wait_ready()
        (pod,) = backend.pods()
        assert TOKEN not in download_log(backend, pod)
        assert TOKEN not in str(pod)
        sent = {(request.host, request.token) for request in hub.requests}
        assert sent == {("hub", TOKEN), ("storage", None)}
    finally:
        core.delete_namespaced_secret(secret, NAMESPACE)


CAUSES: list[tuple[str, dict[str, Any], str]] = [
    ("no repository", {"repository": "acme/none"}, "has no repository acme/none, or it needs a token"),
    ("no file", {"file": "none.safetensors"}, "has no file none.safetensors; it has model.safetensors"),
    ("no revision", {"revision": "v2"}, f"{SNAPSHOT} has no revision v2"),
    ("no token", {"repository": PRIVATE}, "name one in `tokenSecretRef`"),
    ("gated", {"repository": GATED}, f"{GATED} is gated: accept its terms at"),
    ("nobody there", {"endpoint": f"http://{node_address(1)}:1"}, "cannot reach"),
]


@pytest.mark.parametrize(("source", "sentence"), [case[1:] for case in CAUSES], ids=[case[0] for case in CAUSES])
def test_why_a_model_does_not_come_stands_in_the_status(
    serve: Callable[..., Backend],
    record: Callable[..., None],
    request: pytest.FixtureRequest,
    source: Any,
    sentence: str,
) -> None:
    backend = serve(**source)
    seconds = wait_until(
        lambda: sentence in ready_message(backend),
        timeout=CAUSE_SECONDS,
        what=lambda: f"{sentence!r}; Ready says {conditions(backend.read()).get('Ready')}",
    )
    record(
        f"cause in the status: {request.node.callspec.id}",
        round(seconds, 1),
        unit="s",
        bar=f"≤ {TOLD_SECONDS} s",
        holds=seconds <= TOLD_SECONDS,
    )


def test_it_recovers_by_itself_when_the_repository_appears(
    serve: Callable[..., Backend], hub: Hub, record: Callable[..., None]
) -> None:
    backend = serve(repository="acme/late")
    wait_until(
        lambda: "has no repository acme/late" in ready_message(backend),
        timeout=CAUSE_SECONDS,
        what=lambda: f"the cause; Ready says {ready_message(backend)}",
    )
    hub.repositories["acme/late"] = Repository("acme/late", hub.repositories[SNAPSHOT].contents)
    seconds = backend.wait_ready(timeout=RECOVERY_SECONDS)
    record("Ready after the repository has appeared", round(seconds, 1), unit="s")


def test_deletion_ends_a_running_download_at_once(
    serve: Callable[..., Backend], hub: Hub, claim: str, record: Callable[..., None]
) -> None:
    hub.faults.bytes_per_second = 1_000_000
    try:
        backend = serve("LlamaCpp", cache=claim)
        wait_until(lambda: bool(hub.starts(*WEIGHTS["LlamaCpp"])), timeout=60, what=lambda: "a download that runs")
        backend.delete()
        started = time.monotonic()
        gone(backend)
        seconds = time.monotonic() - started
    finally:
        hub.faults.bytes_per_second = None
    holds = seconds <= END_SECONDS
    record(
        "delete to gone, in the middle of a download",
        round(seconds, 1),
        unit="s",
        bar=f"≤ {END_SECONDS} s",
        holds=holds,
    )
    assert holds
