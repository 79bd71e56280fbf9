"""Paths are those the API server serves."""

import pytest

from penstock.kube.kinds import CHILD_KINDS, CONFIG_MAP, DEPLOYMENT, LLM_BACKEND, kind_of


@pytest.mark.parametrize(
    ("kind", "arguments", "path"),
    [
        (CONFIG_MAP, (None,), "/api/v1/configmaps"),
        (CONFIG_MAP, ("n",), "/api/v1/namespaces/n/configmaps"),
        (DEPLOYMENT, ("n", "x"), "/apis/apps/v1/namespaces/n/deployments/x"),
        (
            LLM_BACKEND,
            ("n", "x", "status"),
            "/apis/serving.penstock.dev/v1alpha1/namespaces/n/llmbackends/x/status",
        ),
        (CONFIG_MAP, ("n", "../secrets/x"), "/api/v1/namespaces/n/configmaps/..%2Fsecrets%2Fx"),
    ],
    ids=["everywhere", "collection", "object", "subresource", "a name cannot leave its place"],
)
def test_paths(kind, arguments, path):
    assert kind.path(*arguments) == path


def test_api_versions_are_those_of_manifests():
    assert CONFIG_MAP.api_version == "v1"
    assert LLM_BACKEND.api_version == "serving.penstock.dev/v1alpha1"


def test_every_kind_is_found_by_its_objects():
    for kind in (LLM_BACKEND, *CHILD_KINDS):
        assert kind_of({"apiVersion": kind.api_version, "kind": kind.name}) is kind


def test_an_unknown_kind_is_a_key_error():
    with pytest.raises(KeyError):
        kind_of({"apiVersion": "v1", "kind": "Node"})
