"""Backends, Deployments and pods in the states that status speaks about."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.api.backend import LLMBackend

Object = dict[str, Any]


@pytest.fixture
def make_backend() -> Callable[..., LLMBackend]:
    def make(**spec: Any) -> LLMBackend:
        return LLMBackend.parse(
            {
                "apiVersion": "serving.penstock.dev/v1alpha1",
                "kind": "LLMBackend",
                "metadata": {"name": "smol", "namespace": "team", "uid": "u", "generation": 3},
                "spec": {
                    "engine": {"type": "LlamaCpp", "image": "llama.cpp:server-b11434"},
                    "model": {"name": "m", "source": {"baked": {"path": "/m.gguf"}}},
                    **spec,
                },
            }
        )

    return make


@pytest.fixture
def make_deployment() -> Callable[..., Object]:
    def make(
        *,
        generation: int = 1,
        observed: int = 1,
        replicas: int = 0,
        ready: int = 0,
        updated: int = 0,
        **conditions: Object,
    ) -> Object:
        return {
            "metadata": {"name": "smol", "namespace": "team", "generation": generation},
            "status": {
                "observedGeneration": observed,
                "replicas": replicas,
                "availableReplicas": ready,
                "updatedReplicas": updated,
                "conditions": [{"type": name, **condition} for name, condition in conditions.items()],
            },
        }

    return make


@pytest.fixture
def make_pod() -> Callable[..., Object]:
    def make(
        name: str = "smol-1", *, deleted: bool = False, scheduled: Object | None = None, **containers: Object
    ) -> Object:
        status: Object = {}
        if scheduled is not None:
            status["conditions"] = [{"type": "PodScheduled", "status": "False", **scheduled}]
        limiter = containers.pop("limiter", None)
        if limiter is not None:
            status["initContainerStatuses"] = [{"name": "limiter", "image": "penstock:1", **limiter}]
        status["containerStatuses"] = [
            {"name": container, "image": "engine:1", **state} for container, state in containers.items()
        ]
        metadata: Object = {"name": name, "namespace": "team"}
        if deleted:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return {"metadata": metadata, "status": status}

    return make
