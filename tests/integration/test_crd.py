"""What a real API server makes of LLMBackends: refused with a sentence that helps, or stored with defaults.

Rules in CEL run only there. Every object here is also given to the model, which must judge it the same.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from penstock.api.backend import LLMBackend
from penstock.api.errors import InvalidBackend
from tests.api.examples import CRD_SCHEMA, backend, defaulted, vllm, without_empty

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("installed")]

CLAIM = {"persistentVolumeClaim": {"claimName": "models", "path": "/m.gguf"}}
BAKED = {"baked": {"path": "/m.gguf"}}
GPU = "nvidia.com/gpu"


def model(**source: Any) -> dict[str, Any]:
    """Return a model with a source."""
    return {"name": "m", "source": source}


def create(api: Any, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return status and answer of creating an object that is not stored."""
    answer = api.request("POST", api.path("LLMBackend", "default"), json=body, params={"dryRun": "All"})
    return answer.status_code, answer.json()


WRONG = [
    pytest.param(
        backend(name="qwen2.5-7b"),
        "",
        "letters, digits and `-`, starting with a letter; write for example qwen2-5-7b",
        id="a dot in the name",
    ),
    pytest.param(backend(name="7b-chat"), "", "write for example m-7b-chat", id="a name that starts with a digit"),
    pytest.param(backend(name="a" * 53), "", "at most 52 lower-case letters", id="a name that is too long"),
    pytest.param(
        backend(engine={"type": "TGI"}), "spec.engine.type", 'supported values: "VLLM", "LlamaCpp"', id="type"
    ),
    pytest.param(
        backend(engine={"type": "LlamaCpp", "vllm": {}}),
        "spec.engine.vllm",
        "for LlamaCpp write `llamaCpp`",
        id="vllm block",
    ),
    pytest.param(
        backend(engine={"type": "VLLM", "llamaCpp": {}}),
        "spec.engine.llamaCpp",
        "for VLLM write `vllm`",
        id="llamaCpp block",
    ),
    pytest.param(backend(model=model()), "spec.model.source", "write exactly one of", id="no source"),
    pytest.param(backend(model=model(**CLAIM, **BAKED)), "spec.model.source", "write exactly one of", id="two sources"),
    pytest.param(
        backend(model=model(hostPath={"path": "/"})), "spec.model.source", "write exactly one of", id="a host path"
    ),
    pytest.param(
        backend(model=model(baked={"path": "m.gguf"})),
        "spec.model.source.baked.path",
        "must be an absolute path without `.` and `..`, such as /models/model.gguf",
        id="a relative path",
    ),
    pytest.param(
        backend(model=model(persistentVolumeClaim={"claimName": "c", "path": "/a/../../etc"})),
        "spec.model.source.persistentVolumeClaim.path",
        "must be an absolute path without `.` and `..`",
        id="a path that climbs",
    ),
    pytest.param(
        backend(model=model(persistentVolumeClaim={"claimName": "c", "path": "/"})),
        "spec.model.source",
        "llama.cpp needs the path of a GGUF file",
        id="a folder for llama.cpp",
    ),
    pytest.param(
        backend(model={"name": "my model", "source": BAKED}),
        "spec.model.name",
        "such as Qwen/Qwen2.5-7B-Instruct",
        id="a space in the model's name",
    ),
    pytest.param(
        backend(model={"name": "m", "aliases": ["a,b"], "source": BAKED}),
        "spec.model.aliases[0]",
        "must be letters, digits and any of",
        id="a comma in an alias",
    ),
    pytest.param(
        vllm(args=["--seed", "7", "--host=0.0.0.0"]),
        "spec.engine.args",
        "`--host=0.0.0.0`: Penstock sets this itself, because the engine is reached through the limiter only",
        id="an argument that opens the engine",
    ),
    pytest.param(
        backend(engine={"type": "LlamaCpp", "env": [{"name": "LLAMA_ARG_HOST", "value": "0.0.0.0"}]}),
        "spec.engine.env",
        "LLAMA_ARG_* are refused",
        id="a variable that opens the engine",
    ),
    pytest.param(
        vllm(engine={"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}),
        "spec.engine.env[1]",
        "Duplicate value",
        id="a variable twice",
    ),
    pytest.param(
        vllm(engine={"env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
        "spec.engine.env[0]",
        "write `value` or `valueFrom`, not both",
        id="two values",
    ),
    pytest.param(
        vllm(engine={"env": [{"name": "A", "valueFrom": {}}]}),
        "spec.engine.env[0].valueFrom",
        "write exactly one of `secretKeyRef`, `configMapKeyRef` and `fieldRef`",
        id="a value from nowhere",
    ),
    pytest.param(
        vllm(engine={"env": [{"name": "1A", "value": "1"}]}),
        "spec.engine.env[0].name",
        "must be a variable's name",
        id="a variable that starts with a digit",
    ),
    pytest.param(
        vllm(engine={"vllm": {"tensorParallelSize": 4}}, resources={"limits": {GPU: 2}}),
        "spec",
        "must equal tensorParallelSize × pipelineParallelSize × dataParallelSize; leave tensorParallelSize out",
        id="more ranks than GPUs",
    ),
    pytest.param(
        vllm(engine={"vllm": {"dataParallelSize": 2}}, resources={"limits": {GPU: "3"}}),
        "spec",
        "must equal tensorParallelSize",
        id="GPUs that cannot be divided",
    ),
    pytest.param(
        backend(drain={"lameDuckSeconds": 600, "timeoutSeconds": 7000}),
        "spec.drain",
        "may add up to 7200 seconds (two hours) at most",
        id="a drain that is too long",
    ),
    pytest.param(backend(drain={"timeoutSeconds": 7200}), "spec.drain", "two hours", id="with the default lame duck"),
    pytest.param(backend(replicas=-1), "spec.replicas", "greater than or equal to 0", id="negative replicas"),
    pytest.param(backend(service={"port": 70000}), "spec.service.port", "less than or equal to 65535", id="port"),
    pytest.param(
        backend(resources={"limits": {"memory": "lots"}}), "spec.resources.limits.memory", "should match", id="quantity"
    ),
    pytest.param(
        backend(pod={"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}),
        "spec.pod.volumes[0]",
        "hostPath and others are not supported",
        id="a host path as a volume",
    ),
    pytest.param(
        backend(pod={"volumes": [{"name": "x", "emptyDir": {}, "secret": {"secretName": "s"}}]}),
        "spec.pod.volumes[0]",
        "exactly one of",
        id="a volume with two sources",
    ),
    pytest.param(
        backend(pod={"volumes": [{"name": "penstock-tmp", "emptyDir": {}}]}),
        "spec.pod.volumes[0].name",
        "Penstock's own; choose another",
        id="a reserved volume name",
    ),
    pytest.param(
        backend(pod={"volumes": [{"name": "x", "emptyDir": {}}], "volumeMounts": [{"name": "y", "mountPath": "/y"}]}),
        "spec.pod",
        "names a volume in `volumes`",
        id="a mount without its volume",
    ),
    pytest.param(
        backend(pod={"volumes": [{"name": "x", "configMap": {"name": "c", "items": [{"key": "k", "path": "../k"}]}}]}),
        "spec.pod.volumes[0].configMap.items[0].path",
        "must be a relative path",
        id="a file that climbs out of its volume",
    ),
]

RIGHT = [
    pytest.param(backend(), id="the smallest object"),
    pytest.param(backend(name="a"), id="a short name"),
    pytest.param(backend(name="a" * 52), id="the longest name"),
    pytest.param(backend(model=model(**CLAIM)), id="a model in a claim"),
    pytest.param(
        vllm(model=model(persistentVolumeClaim={"claimName": "models", "path": "/"})), id="a whole claim for vLLM"
    ),
    pytest.param(vllm(resources={"limits": {GPU: 2, "cpu": "1500m", "memory": "16Gi"}}), id="GPUs and no ranks"),
    pytest.param(
        vllm(
            engine={"vllm": {"tensorParallelSize": 2, "pipelineParallelSize": 2}},
            resources={"limits": {GPU: "4", "cpu": 8}},
        ),
        id="as many GPUs as ranks",
    ),
    pytest.param(vllm(engine={"vllm": {"tensorParallelSize": 2}}), id="ranks and no GPUs"),
    pytest.param(vllm(engine={"vllm": {}}), id="an empty block"),
    pytest.param(
        backend(
            engine={
                "type": "LlamaCpp",
                "image": "registry.example/llama:b11434",
                "version": "b11434",
                "args": ["--jinja", "-b", "512"],
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
                ],
                "contextLength": 8192,
                "maxConcurrency": 8,
                "llamaCpp": {"gpuLayers": 99, "threads": 4, "cacheRamMebibytes": 512, "flashAttention": "Enabled"},
            },
            replicas=3,
            limiter={"logLevel": "Debug", "resources": {"limits": {"memory": "512Mi"}}},
            drain={"lameDuckSeconds": 0, "timeoutSeconds": 7200},
            health={"startupTimeoutSeconds": 60},
            service={"port": 8080},
            pod={
                "volumes": [
                    {"name": "a", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
                    {"name": "b", "configMap": {"name": "c", "items": [{"key": "k", "path": "f/k", "mode": 292}]}},
                    {"name": "c", "secret": {"secretName": "s", "defaultMode": 256}},
                    {"name": "d", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
                    {"name": "e", "csi": {"driver": "d.example", "volumeAttributes": {"x": "y"}}},
                    {
                        "name": "f",
                        "ephemeral": {
                            "volumeClaimTemplate": {
                                "spec": {
                                    "accessModes": ["ReadWriteOnce"],
                                    "resources": {"requests": {"storage": "10Gi"}},
                                }
                            }
                        },
                    },
                ],
                "volumeMounts": [{"name": "a", "mountPath": "/a", "subPath": "x.d/y", "readOnly": True}],
                "sharedMemoryMebibytes": 64,
            },
        ),
        id="every field",
    ),
]


@pytest.mark.parametrize(("body", "field", "sentence"), WRONG)
def test_a_wrong_object_is_refused_with_its_field_and_a_way_out(
    api: Any, body: dict[str, Any], field: str, sentence: str
) -> None:
    status, answer = create(api, body)
    assert status == 422, answer
    causes = {cause["field"]: cause["message"] for cause in answer["details"]["causes"]}
    assert field in causes or (not field and "<nil>" in causes), causes
    assert sentence in causes[field or "<nil>"]
    with pytest.raises(InvalidBackend):
        LLMBackend.parse(body)


@pytest.mark.parametrize("body", RIGHT)
def test_a_right_object_is_stored_with_the_defaults_that_the_model_has(api: Any, body: dict[str, Any]) -> None:
    status, answer = create(api, body)
    assert status == 201, answer
    stored = without_empty(as_text(answer["spec"]))
    assert stored == without_empty(defaulted(CRD_SCHEMA["properties"]["spec"], body["spec"]))
    assert stored == without_empty(LLMBackend.parse(body).spec.to_dict())


def test_the_type_of_the_engine_cannot_be_changed(api: Any) -> None:
    api.create({**backend(name="fixed"), "metadata": {"name": "fixed", "namespace": "default"}})
    path = api.path("LLMBackend", "default", "fixed")
    answer = api.request(
        "PATCH",
        path,
        json={"spec": {"engine": {"type": "VLLM"}}},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    api.delete("LLMBackend", "default", "fixed")
    assert answer.status_code == 422
    assert "the engine's type cannot be changed; make a new LLMBackend" in answer.json()["message"]


def test_autoscalers_can_scale_it(api: Any) -> None:
    api.create({**backend(name="scaled"), "metadata": {"name": "scaled", "namespace": "default"}})
    scaled = api.patch("LLMBackend", "default", "scaled", {"spec": {"replicas": 3}}, subresource="scale")
    stored = api.get("LLMBackend", "default", "scaled")
    api.delete("LLMBackend", "default", "scaled")
    assert scaled["kind"] == "Scale"
    assert stored["spec"]["replicas"] == 3


def test_unknown_fields_are_named_when_asked_for(api: Any) -> None:
    """`kubectl` asks for strict checking, so a typing error does not pass in silence."""
    body = copy.deepcopy(backend())
    body["spec"]["replica"] = 2
    answer = api.request(
        "POST", api.path("LLMBackend", "default"), json=body, params={"dryRun": "All", "fieldValidation": "Strict"}
    )
    assert answer.status_code == 400
    assert 'unknown field "spec.replica"' in answer.json()["message"]


def as_text(value: Any) -> Any:
    """Write quantities as the model does: the API server keeps whole numbers as numbers."""
    if not isinstance(value, dict):
        return [as_text(entry) for entry in value] if isinstance(value, list) else value
    return {
        name: {key: str(entry) for key, entry in inner.items()} if name in {"limits", "requests"} else as_text(inner)
        for name, inner in value.items()
    }
