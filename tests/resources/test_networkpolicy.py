"""The NetworkPolicy: the API is open, the admin port is for the operator and for scrapers."""

import dataclasses

import pytest

from penstock.resources import networkpolicy
from penstock.resources.objects import Object


def reaches(policy: Object, *, port: int, namespace: dict[str, str], pod: dict[str, str]) -> bool:
    """Tell whether a policy lets a pod with these labels, in a namespace with these labels, reach a port."""
    return any(
        port in {entry["port"] for entry in rule["ports"]}
        and ("from" not in rule or any(_is_peer(peer, namespace, pod) for peer in rule["from"]))
        for rule in policy["spec"]["ingress"]
    )


def _is_peer(peer: Object, namespace: dict[str, str], pod: dict[str, str]) -> bool:
    return "namespaceSelector" in peer and all(
        _selects(peer.get(selector, {}), labels)
        for selector, labels in (("namespaceSelector", namespace), ("podSelector", pod))
    )


def _selects(selector: Object, labels: dict[str, str]) -> bool:
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        entry["operator"] == "In" and labels.get(entry["key"]) in entry["values"]
        for entry in selector.get("matchExpressions", ())
    )


OPERATOR = {"kubernetes.io/metadata.name": "penstock-system"}
MONITORING = {"kubernetes.io/metadata.name": "monitoring"}
TEAM = {"kubernetes.io/metadata.name": "team"}


@pytest.mark.parametrize(
    ("port", "namespace", "pod", "allowed"),
    [
        (8000, TEAM, {}, True),
        (8000, {"kubernetes.io/metadata.name": "elsewhere"}, {"app": "client"}, True),
        (9901, OPERATOR, {"app.kubernetes.io/name": "penstock"}, True),
        (9901, MONITORING, {"app.kubernetes.io/name": "prometheus"}, True),
        (9901, MONITORING | {"serving.penstock.dev/scraper": "true"}, {"app": "own"}, True),
        (9901, MONITORING, {"app": "own"}, False),
        (9901, TEAM, {}, False),
        (8001, OPERATOR, {}, False),
    ],
    ids=[
        "the API from its own namespace",
        "the API from anywhere",
        "the admin port from the operator",
        "the admin port from a Prometheus",
        "the admin port from a namespace of scrapers",
        "no admin port for another pod beside the Prometheus",
        "no admin port for the team's own pods",
        "the engine for nobody",
    ],
)
def test_who_reaches_the_replicas(make_backend, settings, port, namespace, pod, allowed):
    policy = networkpolicy.build(make_backend(networkPolicy="Enabled"), settings)
    assert reaches(policy, port=port, namespace=namespace, pod=pod) is allowed


def test_the_operator_is_let_in_from_wherever_it_is_installed(make_backend, settings):
    elsewhere = dataclasses.replace(settings, namespace="platform")
    policy = networkpolicy.build(make_backend(networkPolicy="Enabled"), elsewhere)
    assert reaches(policy, port=9901, namespace={"kubernetes.io/metadata.name": "platform"}, pod={})
    assert not reaches(policy, port=9901, namespace=OPERATOR, pod={})


def test_it_is_made_only_where_asked_for(make_backend, settings):
    assert networkpolicy.build(make_backend(), settings) is None
    assert networkpolicy.build(make_backend(networkPolicy="Disabled"), settings) is None


def test_what_replicas_reach_stays_open(make_backend, settings):
    policy = networkpolicy.build(make_backend(networkPolicy="Enabled"), settings)
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert "egress" not in policy["spec"]


def test_it_protects_the_backend_s_own_replicas(make_backend, settings):
    policy = networkpolicy.build(make_backend(networkPolicy="Enabled"), settings)
    assert policy["spec"]["podSelector"]["matchLabels"] == {
        "serving.penstock.dev/backend": "smol",
        "app.kubernetes.io/managed-by": "penstock",
    }
