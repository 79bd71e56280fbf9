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
                "readyReplicas": ready,
                "updatedReplicas": updated,
                "conditions": [{"type": name, **condition} for name, condition in conditions.items()],
            },
        }

    return make


@pytest.fixture
def make_pod() -> Callable[..., Object]:
    def make(
        name: str = "smol-1",
        *,
        deleted: bool = False,
        scheduled: Object | None = None,
        conditions: Object | None = None,
        template: str = "new",
        created: str = "2026-01-01T00:00:00Z",
        status: Object | None = None,
        **containers: Object,
    ) -> Object:
        told = [{"type": "PodScheduled", "status": "False", **scheduled}] if scheduled is not None else []
        told += [{"type": kind, "status": value} for kind, value in (conditions or {}).items()]
        init = {kind: containers.pop(kind) for kind in ("limiter", "download") if kind in containers}
        metadata: Object = {
            "name": name,
            "namespace": "team",
            "labels": {"pod-template-hash": template},
            "creationTimestamp": created,
        }
        if deleted:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return {
            "metadata": metadata,
            "status": {
                "conditions": told,
                "initContainerStatuses": _statuses(init, image="penstock:1"),
                "containerStatuses": _statuses(containers, image="engine:1"),
                **(status or {}),
            },
        }

    return make


def _statuses(containers: Object, *, image: str) -> list[Object]:
    return [{"name": name, "image": image, **state} for name, state in containers.items()]
