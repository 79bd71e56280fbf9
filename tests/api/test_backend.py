"""The LLMBackend model: what it accepts, what it refuses and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.api.backend import EngineType, LLMBackend
from penstock.api.errors import InvalidBackend
from tests.api.examples import backend, vllm


def problems(body: dict[str, Any]) -> dict[str, str]:
    """Return what is wrong with an object, by field."""
    with pytest.raises(InvalidBackend) as caught:
        LLMBackend.parse(body)
    return {problem.field: problem.message for problem in caught.value.problems}


def test_the_smallest_object_gets_safe_defaults() -> None:
    spec = LLMBackend.parse(backend()).spec
    assert spec.replicas == 1
    assert (spec.drain.lame_duck_seconds, spec.drain.timeout_seconds) == (10, 300)
    assert spec.health.startup_timeout_seconds == 1800
    assert spec.service.port == 80
    assert spec.limiter.maximum_body_mebibytes == 32
    assert spec.limiter.resources.to_dict() == {
        "requests": {"cpu": "100m", "memory": "128Mi"},
        "limits": {"memory": "256Mi"},
    }
    assert spec.engine.type is EngineType.LLAMA_CPP


def test_fields_of_a_newer_version_are_ignored() -> None:
    """An old operator keeps working when the CRD gains a field."""
    body = backend(admission={"mode": "Enforce"})
    body["spec"]["engine"]["speculation"] = {"draft": "small"}
    body["status"] = {"conditions": [], "rollout": {"strategy": "Surge"}}
    assert LLMBackend.parse(body).spec == LLMBackend.parse(backend()).spec


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
    ],
    ids=["baked", "file in a claim", "a whole claim", "folder in a claim"],
)
def test_the_engine_finds_the_model_where_its_source_says(source: dict[str, Any], path: str) -> None:
    body = vllm(model={"name": "m", "source": source})
    assert LLMBackend.parse(body).spec.model.source.path_in_container == path


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        pytest.param(backend(name="qwen2.5-7b"), "", "name of a Service", id="a dot in the name"),
        pytest.param(backend(name="7b"), "", "starting with a letter", id="a name that starts with a digit"),
        pytest.param(backend(name="a" * 53), "", "at most 52", id="a name too long for a Service"),
        pytest.param(backend(name="qwen-"), "", "name of a Service", id="a name that ends with a hyphen"),
        pytest.param(backend(replicas=-1), "spec.replicas", "greater than or equal to 0", id="negative replicas"),
        pytest.param(backend(replicas="2"), "spec.replicas", "integer", id="replicas as text"),
        pytest.param(backend(engine={"type": "TGI"}), "spec.engine.type", "'VLLM' or 'LlamaCpp'", id="unknown engine"),
        pytest.param(
            backend(engine={"type": "LlamaCpp", "vllm": {}}), "spec.engine.vllm", "write `llamaCpp`", id="vllm block"
        ),
        pytest.param(vllm(engine={"llamaCpp": {}}), "spec.engine.llamaCpp", "write `vllm`", id="llamaCpp block"),
        pytest.param(backend(model={"name": "m", "source": {}}), "spec.model.source", "exactly one", id="no source"),
        pytest.param(
            backend(
                model={
                    "name": "m",
                    "source": {
                        "baked": {"path": "/m"},
                        "persistentVolumeClaim": {"claimName": "c", "path": "/m"},
                    },
                }
            ),
            "spec.model.source",
            "exactly one",
            id="two sources",
        ),
        pytest.param(
            backend(model={"name": "m", "source": {"baked": {"path": "models/m.gguf"}}}),
            "spec.model.source.baked.path",
            "absolute path",
            id="relative path",
        ),
        pytest.param(
            backend(model={"name": "m", "source": {"baked": {"path": "/models/../etc/passwd"}}}),
            "spec.model.source.baked.path",
            "without `.` and `..`",
            id="a path that climbs",
        ),
        pytest.param(
            backend(model={"name": "m", "source": {"baked": {"path": "/models/"}}}),
            "spec.model.source",
            "path of a GGUF file",
            id="a folder for llama.cpp",
        ),
        pytest.param(
            backend(model={"name": "a,b", "source": {"baked": {"path": "/m"}}}),
            "spec.model.name",
            "letters, digits and any of",
            id="a comma in the model's name",
        ),
        pytest.param(vllm(args=["--host=0.0.0.0"]), "spec.engine.args", "reached through the limiter", id="own host"),
        pytest.param(
            vllm(engine={"env": [{"name": "VLLM_API_KEY", "value": "x"}]}),
            "spec.engine.env",
            "reached through the limiter",
            id="own key",
        ),
        pytest.param(
            vllm(engine={"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}),
            "spec.engine.env",
            "`name` repeats: A",
            id="a variable twice",
        ),
        pytest.param(
            vllm(
                engine={"env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}
            ),
            "spec.engine.env[0]",
            "not both",
            id="two values",
        ),
        pytest.param(
            vllm(engine={"vllm": {"tensorParallelSize": 4}}, resources={"limits": {"nvidia.com/gpu": 2}}),
            "spec",
            "must equal tensorParallelSize",
            id="more ranks than GPUs",
        ),
        pytest.param(
            vllm(engine={"vllm": {"pipelineParallelSize": 2}}, resources={"limits": {"amd.com/gpu": "3"}}),
            "spec",
            "must equal tensorParallelSize",
            id="GPUs that cannot be divided",
        ),
        pytest.param(
            backend(drain={"lameDuckSeconds": 600, "timeoutSeconds": 6601}), "spec.drain", "two hours", id="long drain"
        ),
        pytest.param(
            backend(pod={"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}),
            "spec.pod.volumes[0]",
            "hostPath and others are not supported",
            id="host path",
        ),
        pytest.param(
            backend(pod={"volumes": [{"name": "penstock-x", "emptyDir": {}}]}),
            "spec.pod.volumes[0].name",
            "Penstock's own",
            id="reserved volume name",
        ),
        pytest.param(
            backend(pod={"volumeMounts": [{"name": "x", "mountPath": "/x"}]}),
            "spec.pod",
            "names a volume in `volumes`",
            id="mount without a volume",
        ),
        pytest.param(
            backend(resources={"limits": {"memory": "lots"}}), "spec.resources.limits.memory", "pattern", id="quantity"
        ),
    ],
)
def test_a_wrong_object_is_refused_with_its_field_and_a_way_out(body: dict[str, Any], field: str, words: str) -> None:
    found = problems(body)
    assert field in found, found
    assert words in found[field]


def test_all_problems_are_reported_at_once() -> None:
    assert set(problems(backend(replicas=-1, service={"port": 0}))) == {"spec.replicas", "spec.service.port"}


@pytest.mark.parametrize(
    "resources",
    [{}, {"limits": {"memory": "1Gi"}}, {"limits": {"nvidia.com/gpu": 4}}, {"limits": {"nvidia.com/gpu": 0}}],
    ids=["none", "no GPU", "as many as ranks", "zero GPUs"],
)
def test_gpus_are_compared_with_ranks_only_when_both_are_given(resources: dict[str, Any]) -> None:
    tuning = {"tensorParallelSize": 2, "pipelineParallelSize": 2}
    assert LLMBackend.parse(vllm(engine={"vllm": tuning}, resources=resources))
