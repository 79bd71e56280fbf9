"""Reading back what was applied, from an object as an API server keeps it."""

import copy

import pytest

from penstock.rollout.applied import extract, pod_template

FIELDS = {
    "f:spec": {
        "f:replicas": {},
        "f:template": {
            "f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {
                "f:containers": {
                    'k:{"name":"engine"}': {
                        ".": {},
                        "f:name": {},
                        "f:image": {},
                        "f:args": {},
                        "f:resources": {},
                        "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
                    }
                },
                "f:volumes": {'k:{"name":"v"}': {".": {}, "f:name": {}, "f:emptyDir": {}}},
            },
        },
    }
}

LIVE = {
    "metadata": {
        "managedFields": [
            {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:template": {}}}},
            {"manager": "penstock", "operation": "Apply", "subresource": "status", "fieldsV1": {}},
            {"manager": "penstock", "operation": "Update", "fieldsV1": {}},
            {"manager": "penstock", "operation": "Apply", "fieldsV1": FIELDS},
        ]
    },
    "spec": {
        "replicas": 1,
        "template": {
            "metadata": {
                "creationTimestamp": None,
                "labels": {"app": "x", "mesh": "y"},
                "annotations": {"kubectl.kubernetes.io/restartedAt": "now"},
            },
            "spec": {
                "restartPolicy": "Always",
                "containers": [
                    {"name": "mesh", "image": "foreign"},
                    {
                        "name": "engine",
                        "image": "i",
                        "imagePullPolicy": "Always",
                        "args": ["a", "b"],
                        "resources": {"limits": {"memory": "1Gi"}},
                        "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 81, "protocol": "TCP"}],
                    },
                ],
                "volumes": [{"name": "w", "emptyDir": {}}, {"name": "v", "emptyDir": {}}],
            },
        },
    },
}

APPLIED = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {
        "containers": [
            {
                "name": "engine",
                "image": "i",
                "args": ["a", "b"],
                "resources": {"limits": {"memory": "1Gi"}},
                "ports": [{"containerPort": 80}],
            }
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
}


def test_the_template_comes_back_without_defaults_and_without_what_others_have_added():
    assert pod_template(LIVE, manager="penstock") == APPLIED


def test_without_an_entry_of_ours_the_template_is_taken_as_it_is():
    assert pod_template(LIVE, manager="penstock-of-another-name") == LIVE["spec"]["template"]


def test_a_template_that_has_lost_an_image_to_somebody_else_cannot_be_had_back():
    live = copy.deepcopy(LIVE)
    containers = live["metadata"]["managedFields"][3]["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"]
    del containers['k:{"name":"engine"}']["f:image"]
    assert pod_template(live, manager="penstock") is None


def test_a_template_of_which_nothing_is_ours_cannot_be_had_back():
    live = copy.deepcopy(LIVE)
    del live["metadata"]["managedFields"][3]["fieldsV1"]["f:spec"]["f:template"]
    assert pod_template(live, manager="penstock") is None


EXTRACTS = [
    pytest.param({"a": 1, "b": 2}, {"f:a": {}}, {"a": 1}, id="a field"),
    pytest.param({"a": {"b": 1}}, {"f:a": {}}, {"a": {"b": 1}}, id="nothing below: all of it"),
    pytest.param({"a": {"b": 1}}, {"f:a": {".": {}}}, {"a": {}}, id="itself, and nothing in it"),
    pytest.param({"a": 1}, {"f:a": {}, "f:gone": {}}, {"a": 1}, id="a field that has vanished"),
    pytest.param({"a": ["x", "y"]}, {"f:a": {'v:"y"': {}}}, {"a": ["y"]}, id="an entry of a set"),
    pytest.param({"f:odd": 1}, {"f:f:odd": {}}, {"f:odd": 1}, id="a name with a colon"),
]


@pytest.mark.parametrize(("value", "fields", "expected"), EXTRACTS)
def test_extract(value, fields, expected):
    assert extract(value, fields) == expected
