"""What a pod spec takes from `spec.pod` as it is; the fields one by one are in the table of fields."""

import pytest

from tests.resources.pods import engine_of

PLACES = {"topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}


def test_replicas_are_spread_among_those_of_their_backend_and_revision(make_backend, template):
    (constraint,) = template(make_backend(pod={"topologySpreadConstraints": [PLACES]}))["spec"][
        "topologySpreadConstraints"
    ]
    assert constraint == {
        **PLACES,
        "maxSkew": 1,
        "labelSelector": {
            "matchLabels": {"serving.penstock.dev/backend": "smol", "app.kubernetes.io/managed-by": "penstock"}
        },
        "matchLabelKeys": ["pod-template-hash"],
    }


def test_what_the_backend_leaves_out_is_left_to_the_cluster(make_backend, template):
    fields = template(make_backend())["spec"].keys()
    assert not fields & {
        "nodeSelector",
        "tolerations",
        "affinity",
        "topologySpreadConstraints",
        "priorityClassName",
        "runtimeClassName",
        "schedulerName",
        "imagePullSecrets",
    }


def test_affinity_is_passed_on_as_a_copy(make_backend, template):
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}
    backend = make_backend(pod={"affinity": affinity})
    rendered = template(backend)
    assert rendered["spec"]["affinity"] == affinity
    rendered["spec"]["affinity"]["podAffinity"].clear()
    assert template(backend)["spec"]["affinity"] == affinity


@pytest.mark.parametrize(
    "term",
    [{}, {"labelSelector": {}}, {"namespaceSelector": {}}, {"labelSelector": {"matchLabels": {}}, "namespaces": []}],
    ids=["no selector", "every pod", "every namespace", "empty parts"],
)
def test_an_empty_selector_stays_apart_from_none(make_backend, template, term):
    affinity = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", **term}]}
    }
    assert template(make_backend(pod={"affinity": affinity}))["spec"]["affinity"] == affinity


def test_labels_and_annotations_are_added_to_the_pods_alone(make_backend, build):
    backend = make_backend(replicas=2, pod={"labels": {"team": "a"}, "annotations": {"example.com/owner": "b"}})
    *others, deployment = build(backend)
    pods = deployment["spec"].pop("template")
    assert pods["metadata"]["labels"]["team"] == "a"
    assert pods["metadata"]["labels"]["serving.penstock.dev/backend"] == "smol"
    assert pods["metadata"]["annotations"] == {
        "example.com/owner": "b",
        "kubectl.kubernetes.io/default-container": "engine",
    }
    assert "team" not in {key for child in [*others, deployment] for key in child["metadata"]["labels"]}
    assert all("annotations" not in child["metadata"] for child in [*others, deployment])


def test_shared_memory_counts_against_the_limit_of_the_engine(make_backend, template):
    rendered = template(make_backend(pod={"sharedMemoryMebibytes": 64}))
    mounts = {mount["mountPath"] for mount in engine_of(rendered)["volumeMounts"]}
    assert "/dev/shm" in mounts
