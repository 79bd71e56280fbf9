"""The LLMBackend model: what it makes of what users write. What it refuses is in `invalid.py`."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.api.backend import EngineType, LLMBackend
from tests.api.examples import backend, vllm


def test_the_smallest_object_gets_safe_defaults() -> None:
    spec = LLMBackend.parse(backend()).spec
    assert spec.replicas == 1
    assert (spec.drain.lame_duck_seconds, spec.drain.timeout_seconds) == (10, 300)
    assert spec.startup_seconds == 1800
    assert spec.service.port == 80
    assert spec.limiter.maximum_body_mebibytes == 32
    assert spec.limiter.resources.to_dict() == {
        "requests": {"cpu": "100m", "memory": "128Mi"},
        "limits": {"memory": "256Mi"},
    }
    assert spec.engine.type is EngineType.LLAMA_CPP


def test_fields_of_a_newer_version_are_ignored() -> None:
    """An old operator keeps working when the CRD gains a field."""
    body = backend(caching={"mode": "Prefix"})
    body["spec"]["engine"]["speculation"] = {"draft": "small"}
    body["status"] = {"conditions": [], "cost": {"perHour": 3}}
    assert LLMBackend.parse(body).spec == LLMBackend.parse(backend()).spec


def test_an_object_that_an_older_release_stored_means_what_it_meant() -> None:
    """The API server wrote that release's defaults into it; fields that are newer are missing."""
    spec = LLMBackend.parse(
        backend(
            engine={"type": "LlamaCpp", "image": "localhost/engine:demo", "version": "b11434", "contextLength": 2048},
            replicas=1,
            limiter={
                "logLevel": "Info",
                "maximumBodyMebibytes": 32,
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            },
            drain={"lameDuckSeconds": 10, "timeoutSeconds": 300},
            health={"startupTimeoutSeconds": 1800},
            service={"port": 80},
        )
    ).spec
    new = LLMBackend.parse(backend(engine=spec.engine.to_dict())).spec
    assert spec.startup_seconds == new.startup_seconds == 1800
    assert spec.model_copy(update={"health": new.health}) == new


def test_a_parsed_object_is_written_as_kubernetes_spells_it() -> None:
    volume = {"name": "cache", "persistentVolumeClaim": {"claimName": "cache", "readOnly": True}}
    mount = {"name": "cache", "mountPath": "/cache", "subPath": "a/b"}
    pod = LLMBackend.parse(vllm(pod={"volumes": [volume], "volumeMounts": [mount]})).spec.pod
    assert pod.volumes[0].to_dict() == volume
    assert pod.volume_mounts[0].to_dict() == mount


def test_whole_numbers_may_stand_for_quantities() -> None:
    spec = LLMBackend.parse(backend(resources={"limits": {"nvidia.com/gpu": 2, "memory": "8Gi"}})).spec
    assert spec.resources.limits == {"nvidia.com/gpu": "2", "memory": "8Gi"}
    assert {name: int(count) for name, count in spec.resources.gpus().items()} == {"nvidia.com/gpu": 2}


def test_served_names_list_the_model_first_and_each_once() -> None:
    source = {"baked": {"path": "/m.gguf"}}
    model = LLMBackend.parse(backend(model={"name": "b", "aliases": ["a", "b", "c", "a"], "source": source})).spec.model
    assert model.served_names == ("b", "a", "c")


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ({"baked": {"path": "/models/m.gguf"}}, "/models/m.gguf"),
        ({"persistentVolumeClaim": {"claimName": "c", "path": "/qwen/m.gguf"}}, "/model/qwen/m.gguf"),
        ({"persistentVolumeClaim": {"claimName": "c", "path": "/"}}, "/model"),
        ({"persistentVolumeClaim": {"claimName": "c", "path": "/qwen/"}}, "/model/qwen"),
        ({"image": {"reference": "r/m:1"}}, "/model"),
        ({"image": {"reference": "r/m:1", "path": "/qwen/m.gguf"}}, "/model/qwen/m.gguf"),
        ({"huggingFace": {"repository": "a/b"}}, "/model"),
        ({"huggingFace": {"repository": "a/b", "file": "q8/m.gguf"}}, "/model/q8/m.gguf"),
    ],
    ids=[
        "baked",
        "file in a claim",
        "a whole claim",
        "folder in a claim",
        "a whole image",
        "file in an image",
        "a whole repository",
        "file in a repository",
    ],
)
def test_the_engine_finds_the_model_where_its_source_says(source: dict[str, Any], path: str) -> None:
    body = vllm(model={"name": "m", "source": source})
    assert LLMBackend.parse(body).spec.model.source.path_in_container == path


@pytest.mark.parametrize(
    "resources",
    [{}, {"limits": {"memory": "1Gi"}}, {"limits": {"nvidia.com/gpu": 4}}, {"limits": {"nvidia.com/gpu": 0}}],
    ids=["none", "no GPU", "as many as ranks", "zero GPUs"],
)
def test_gpus_are_compared_with_ranks_only_when_both_are_given(resources: dict[str, Any]) -> None:
    tuning = {"tensorParallelSize": 2, "pipelineParallelSize": 2}
    assert LLMBackend.parse(vllm(engine={"vllm": tuning}, resources=resources))


@pytest.mark.parametrize(
    ("health", "size", "seconds"),
    [
        ({}, None, 1800),
        ({}, 150, 603),
        ({}, 140_000, 3400),
        ({}, 16_777_216, 86400),
        ({"startupTimeoutSeconds": 60}, 140_000, 60),
    ],
    ids=["size unknown", "small", "large", "never more than a day", "given"],
)
def test_the_time_to_start_follows_the_size_of_the_model(
    health: dict[str, Any], size: int | None, seconds: int
) -> None:
    model = {"name": "m", "source": {"baked": {"path": "/m.gguf"}}} | ({"sizeMebibytes": size} if size else {})
    assert LLMBackend.parse(backend(health=health, model=model)).spec.startup_seconds == seconds


@pytest.mark.parametrize(("suspend", "wanted"), [(False, 3), (True, 0)], ids=["running", "suspended"])
def test_a_suspended_backend_wants_no_replicas_and_remembers_how_many(suspend: bool, wanted: int) -> None:
    spec = LLMBackend.parse(backend(replicas=3, suspend=suspend)).spec
    assert (spec.wanted_replicas, spec.replicas) == (wanted, 3)
