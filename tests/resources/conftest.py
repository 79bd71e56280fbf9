"""Backends as the API server hands them out, what the operator adds, and the way to what is built from them."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.api.backend import LLMBackend
from penstock.resources import children, deployment
from penstock.resources.facts import ClusterFacts
from penstock.resources.objects import Object
from penstock.resources.settings import BuildSettings

ENGINES: dict[str, dict[str, Any]] = {
    "LlamaCpp": {"type": "LlamaCpp", "image": "ghcr.io/ggml-org/llama.cpp:server-b11434"},
    "VLLM": {"type": "VLLM", "image": "vllm/vllm-openai:v0.18.0"},
}


@pytest.fixture
def settings() -> BuildSettings:
    return BuildSettings(limiter_image="penstock:1", drain_key=b"k" * 32)


@pytest.fixture
def facts() -> ClusterFacts:
    return ClusterFacts(pod_monitors=True, kubernetes_minor=35)


@pytest.fixture
def make_backend() -> Callable[..., LLMBackend]:
    def make(engine_type: str = "LlamaCpp", /, **spec: Any) -> LLMBackend:
        return LLMBackend.parse(
            {
                "apiVersion": "serving.penstock.dev/v1alpha1",
                "kind": "LLMBackend",
                "metadata": {
                    "name": "smol",
                    "namespace": "team",
                    "uid": "11111111-2222-3333-4444-555555555555",
                    "generation": 1,
                    "labels": {"argocd.argoproj.io/instance": "app"},
                    "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
                },
                "spec": {
                    "engine": ENGINES[engine_type],
                    "model": {"name": "smollm2", "source": {"baked": {"path": "/models/smollm2.gguf"}}},
                    **spec,
                },
            }
        )

    return make


@pytest.fixture
def build(settings: BuildSettings, facts: ClusterFacts) -> Callable[[LLMBackend], tuple[Object, ...]]:
    """Build all children of a backend with a fresh template."""

    def build(backend: LLMBackend) -> tuple[Object, ...]:
        return children.build(backend, settings, facts, deployment.template(backend, settings, facts))

    return build


@pytest.fixture
def template(settings: BuildSettings, facts: ClusterFacts) -> Callable[[LLMBackend], Object]:
    """Render the pod template of a backend."""

    def template(backend: LLMBackend) -> Object:
        return deployment.template(backend, settings, facts)

    return template
