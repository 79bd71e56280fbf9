"""What holds for all children, whatever the backend."""

import warnings

import pytest

from penstock.resources import children

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kubernetes_validate

VARIANTS = [
    pytest.param("LlamaCpp", {}, id="llama.cpp with defaults"),
    pytest.param("VLLM", {}, id="vLLM with defaults"),
    pytest.param(
        "VLLM",
        {
            "model": {
                "name": "m",
                "aliases": ["n"],
                "source": {"persistentVolumeClaim": {"claimName": "models", "path": "/m"}},
            },
            "resources": {"limits": {"nvidia.com/gpu": "2", "memory": "64Gi"}},
            "engine": {"type": "VLLM", "vllm": {"tensorParallelSize": 2}},
        },
        id="vLLM on two GPUs with a claim",
    ),
    pytest.param(
        "LlamaCpp",
        {
            "replicas": 3,
            "resources": {"requests": {"cpu": "2", "memory": "1Gi"}},
            "limiter": {"image": "other:2", "logLevel": "Debug", "maximumBodyMebibytes": 8},
            "drain": {"lameDuckSeconds": 1, "timeoutSeconds": 2},
            "health": {"startupTimeoutSeconds": 60},
            "service": {"port": 8080},
            "pod": {
                "sharedMemoryMebibytes": 64,
                "volumes": [{"name": "extra", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
                "volumeMounts": [{"name": "extra", "mountPath": "/extra"}],
            },
        },
        id="llama.cpp with everything set",
    ),
]


@pytest.mark.parametrize(("engine", "spec"), VARIANTS)
@pytest.mark.parametrize("release", ["1.29", "1.34", "1.37"])
def test_every_child_is_valid_in_every_supported_release(make_backend, settings, engine, spec, release):
    for child in children.build(make_backend(engine, **spec), settings):
        kubernetes_validate.validate(child, release, strict=True)


@pytest.mark.parametrize(("engine", "spec"), VARIANTS)
def test_building_twice_gives_equal_objects(make_backend, settings, engine, spec):
    assert children.build(make_backend(engine, **spec), settings) == children.build(
        make_backend(engine, **spec), settings
    )


def test_identity_and_configuration_come_before_the_workload(make_backend, settings):
    kinds = [child["kind"] for child in children.build(make_backend(), settings)]
    assert kinds == ["ServiceAccount", "ConfigMap", "Service", "Deployment"]


def test_every_child_has_the_backend_as_controller_and_fixed_labels(make_backend, settings):
    for child in children.build(make_backend(), settings):
        metadata = child["metadata"]
        assert metadata["namespace"] == "team"
        assert metadata["labels"] == {
            "app.kubernetes.io/name": "llmbackend",
            "app.kubernetes.io/instance": "smol",
            "app.kubernetes.io/managed-by": "penstock",
            "serving.penstock.dev/backend": "smol",
        }
        assert metadata["ownerReferences"] == [
            {
                "apiVersion": "serving.penstock.dev/v1alpha1",
                "kind": "LLMBackend",
                "name": "smol",
                "uid": "11111111-2222-3333-4444-555555555555",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]


def test_nothing_of_the_users_labels_and_annotations_is_copied(make_backend, settings):
    assert "argocd" not in str(children.build(make_backend(), settings))
    assert "last-applied" not in str(children.build(make_backend(), settings))


def test_the_drain_key_itself_is_in_no_child_and_not_in_the_log(make_backend, settings):
    assert "kkkkkkkk" not in str(children.build(make_backend(), settings))
    assert "kkkk" not in repr(settings)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"engine": {"type": "LlamaCpp", "version": "newest"}}, "spec.engine.version", id="engine version"),
        pytest.param(
            {
                "pod": {
                    "volumes": [{"name": "x", "emptyDir": {}}],
                    "volumeMounts": [{"name": "x", "mountPath": "/tmp"}],
                }
            },
            "spec.pod.volumeMounts[0].mountPath",
            id="mount path of ours",
        ),
    ],
)
def test_what_cannot_be_built_is_named_by_field(make_backend, spec, field):
    assert [problem.field for problem in children.check(make_backend(**spec))] == [field]


def test_a_good_spec_has_no_problems(make_backend):
    assert children.check(make_backend()) == []
