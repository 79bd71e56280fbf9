"""What holds for all children, whatever the backend."""

import pytest

from penstock.resources import children
from penstock.resources.facts import UNKNOWN, ClusterFacts

KINDS_IN_ORDER = [
    "ServiceAccount",
    "ConfigMap",
    "NetworkPolicy",
    "Service",
    "Service",
    "PodDisruptionBudget",
    "PodMonitor",
    "Deployment",
]


def test_identity_and_configuration_come_before_the_workload(make_backend, build):
    kinds = [child["kind"] for child in build(make_backend(replicas=2, networkPolicy="Enabled"))]
    assert kinds == KINDS_IN_ORDER


def test_a_small_backend_has_few_children(make_backend, settings, template):
    built = children.build(make_backend(), settings, UNKNOWN, template(make_backend()))
    kinds = [child["kind"] for child in built]
    assert kinds == ["ServiceAccount", "ConfigMap", "Service", "Service", "Deployment"]


def test_no_two_children_are_the_same_object(make_backend, build):
    built = build(make_backend(replicas=2, networkPolicy="Enabled"))
    assert len({(child["kind"], child["metadata"]["name"]) for child in built}) == len(built)


def test_suspending_takes_the_replicas_and_nothing_else(make_backend, build):
    running, suspended = (build(make_backend(replicas=2, suspend=suspend)) for suspend in (False, True))
    assert suspended[-1]["spec"].pop("replicas") == 0
    assert running[-1]["spec"].pop("replicas") == 2
    assert suspended == running


def test_every_child_has_the_backend_as_controller_and_fixed_labels(make_backend, build):
    for child in build(make_backend(replicas=2, networkPolicy="Enabled")):
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


def test_nothing_of_the_users_labels_and_annotations_is_copied(make_backend, build):
    assert "argocd" not in str(build(make_backend()))
    assert "last-applied" not in str(build(make_backend()))


def test_the_drain_key_itself_is_in_no_child_and_not_in_the_log(make_backend, build, settings):
    assert "kkkkkkkk" not in str(build(make_backend()))
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


IMAGE = {"name": "m", "source": {"image": {"reference": "registry.example/m:1", "path": "/m.gguf"}}}


@pytest.mark.parametrize(
    ("minor", "refused"),
    [(None, False), (29, True), (30, True), (31, False), (35, False)],
    ids=["an unknown release", "1.29", "1.30", "1.31, where it may be switched on", "1.35"],
)
def test_an_image_as_the_model_is_refused_where_the_cluster_cannot_mount_it(make_backend, minor, refused):
    problems = children.check(make_backend(model=IMAGE), ClusterFacts(kubernetes_minor=minor))
    assert [problem.field for problem in problems] == (["spec.model.source.image"] if refused else [])
    assert children.check(make_backend(), ClusterFacts(kubernetes_minor=29)) == []
