"""An upgrade of Penstock and three backends that serve: nobody's replicas are replaced, or one backend's at a time.

The newer Penstock is the same content under other names: operator, limiters and default engine image are chosen by the
images' ids instead of their tags. So every template is rendered differently from then on, and all of it is known to
run.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from kubernetes import client

from e2e.install import Installation
from e2e.suite.backends import NAMESPACE, Backend, wait_until
from e2e.suite.background import InBackground
from e2e.suite.streams import ending

pytestmark = pytest.mark.cluster

NAMES = ("upgrade-a", "upgrade-b", "upgrade-c")
DEFAULT_IMAGE = {"LlamaCpp": "settings.defaultLlamaCppImage", "VLLM": "settings.defaultVllmImage"}
STREAM_TOKENS = 80
QUIET_SECONDS = 10
"""How long nothing may happen after an upgrade before that counts; a roll begins within one."""

ROLL_SECONDS = 300
"""Far more than it takes, for a machine that has other work to do."""


class Streaming(InBackground):
    """Holds streams open at a backend, one after the other, and keeps how each ended."""

    def __init__(self, backend: Backend) -> None:
        super().__init__()
        self._client = openai.OpenAI(base_url=f"{backend.url}/v1", api_key="none", max_retries=0, timeout=120)
        self._model = backend.model
        self.endings: list[object] = []

    def __exit__(self, *causes: object) -> None:
        super().__exit__(*causes)
        self._client.close()

    def step(self) -> None:
        try:
            self.endings.append(self._one())
        except openai.APIError as error:
            self.endings.append(repr(error))

    def _one(self) -> tuple[str, int]:
        with self._client.chat.completions.create(
            model=self._model,
            messages=[{"role": "user", "content": "Say something about rivers."}],
            max_tokens=STREAM_TOKENS,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True},
        ) as stream:
            return ending(stream)


@pytest.fixture(scope="module")
def engine(engine_images: dict[str, str]) -> str:
    """The lightest engine there is."""
    return "VLLM" if "VLLM" in engine_images else next(iter(engine_images))


@pytest.fixture(scope="module")
def installation(engine: str, engine_images: dict[str, str]) -> Iterator[Installation]:
    """The suite's installation, with a default image for the engine and one rollout at a time."""
    found = Installation()
    values: dict[str, Any] = {DEFAULT_IMAGE[engine]: engine_images[engine], "settings.maxConcurrentRollouts": 1}
    found.install(**values)
    yield found
    found.install()


@pytest.fixture(scope="module")
def backends(
    installation: Installation,  # noqa: ARG001 - it comes first: it knows the default image
    engine: str,
    engine_images: dict[str, str],
    api: client.ApiClient,
) -> Iterator[list[Backend]]:
    """Three ready backends with two replicas each, none of which names an image."""
    made = [Backend.for_engine(engine, image=engine_images[engine], api=api) for _ in NAMES]
    for one, name in zip(made, NAMES, strict=True):
        one.name = name
        del one.spec["engine"]["image"]
        one.apply()
    for one in made:
        one.wait_ready(timeout=ROLL_SECONDS)
    yield made
    for one in made:
        one.delete()
    wait_until(lambda: not any(one.pods(running=False) for one in made), timeout=60, what=lambda: "the pods to go")


@pytest.fixture(scope="module")
def newer(installation: Installation, backends: list[Backend], engine: str) -> Callable[[], None]:
    """Return a function that installs the newer Penstock."""
    pod = backends[0].pods()[0]
    limiter, served = (
        next(status.image_id for status in statuses if status.name == name)
        for statuses, name in (
            (pod.status.init_container_statuses, "limiter"),
            (pod.status.container_statuses, "engine"),
        )
    )

    def install() -> None:
        repository, _, tag = limiter.partition(":")
        values: dict[str, Any] = {
            "image.repository": repository,
            "image.tag": tag,
            DEFAULT_IMAGE[engine]: served,
            "settings.maxConcurrentRollouts": 1,
        }
        installation.install(**values)

    return install


def images(pod: Any) -> tuple[str, str]:
    """Return the images of limiter and engine as the pod's spec names them."""
    (limiter,) = (one.image for one in pod.spec.init_containers if one.name == "limiter")
    (served,) = (one.image for one in pod.spec.containers if one.name == "engine")
    return limiter, served


def uids(backend: Backend) -> set[str]:
    return {pod.metadata.uid for pod in backend.pods(running=False)}


def deployment(backend: Backend) -> Any:
    return client.AppsV1Api(backend.api).read_namespaced_deployment(backend.name, NAMESPACE)


def whole(streaming: Streaming) -> bool:
    return bool(streaming.endings) and set(streaming.endings) == {("length", STREAM_TOKENS)}


def test_without_a_change_of_the_spec_no_replica_is_replaced(
    newer: Callable[[], None], backends: list[Backend], record: Callable[..., None]
) -> None:
    """Neither pods nor Deployments notice, and the replicas that are added later are like those that were there."""
    before = [uids(one) for one in backends]
    generations = [deployment(one).metadata.generation for one in backends]
    templates = [images(one.pods()[0]) for one in backends]
    with Streaming(backends[0]) as first, Streaming(backends[1]) as second, Streaming(backends[2]) as third:
        newer()
        time.sleep(QUIET_SECONDS)
    replaced = sum(len(uids(one) ^ known) for one, known in zip(backends, before, strict=True))
    record("replicas replaced by an upgrade, OnSpecChange", replaced, unit="of 6", bar="0", holds=replaced == 0)
    assert replaced == 0
    assert [deployment(one).metadata.generation for one in backends] == generations
    for streaming in (first, second, third):
        assert whole(streaming), streaming.endings
    backends[0].spec["replicas"] = 3
    backends[0].apply()
    backends[0].wait_ready(timeout=ROLL_SECONDS)
    assert {images(pod) for pod in backends[0].pods()} == {templates[0]}
    backends[0].spec["replicas"] = 2
    backends[0].apply()
    backends[0].wait_ready(timeout=ROLL_SECONDS)


def test_with_rolling_one_backend_at_a_time_is_replaced(
    newer: Callable[[], None], backends: list[Backend], record: Callable[..., None]
) -> None:
    """The first replica of a backend is made only when the last of the backend before it is ready."""
    newer()
    old = {one.name: images(one.pods()[0]) for one in backends}
    before = {one.name: uids(one) for one in backends}
    with Streaming(backends[0]) as first, Streaming(backends[1]) as second, Streaming(backends[2]) as third:
        started = time.monotonic()
        for one in backends:
            one.spec["upgradePolicy"] = "Rolling"
            one.apply()

        def replaced() -> bool:
            return all(
                len(one.pods()) == 2 and all(images(pod) != old[one.name] for pod in one.pods()) for one in backends
            )

        wait_until(replaced, timeout=ROLL_SECONDS, what=lambda: "all replicas to be replaced")
        for one in backends:
            one.wait_ready(timeout=ROLL_SECONDS)
        record("three backends of two replicas upgraded, Rolling", time.monotonic() - started, unit="s")
    spans = sorted((span(one), one.name) for one in backends)
    overlaps = sum(spans[index][0][1] > spans[index + 1][0][0] for index in range(len(spans) - 1))
    record("backends upgraded at the same time, one allowed", overlaps, bar="0", holds=overlaps == 0)
    assert overlaps == 0, spans
    for one in backends:
        assert before[one.name].isdisjoint(pod.metadata.uid for pod in one.pods())
    cut = sum(end != ("length", STREAM_TOKENS) for one in (first, second, third) for end in one.endings)
    record("streams cut or refused while backends were upgraded", cut, bar="0", holds=cut == 0)
    for streaming in (first, second, third):
        assert whole(streaming), streaming.endings


def span(backend: Backend) -> tuple[dt.datetime, dt.datetime]:
    """Return when the first of the backend's pods was made and when the last became ready."""
    pods = backend.pods()
    ready = [
        condition.last_transition_time
        for pod in pods
        for condition in pod.status.conditions
        if condition.type == "Ready" and condition.status == "True"
    ]
    return min(pod.metadata.creation_timestamp for pod in pods), max(ready)
