"""The Service leads to the limiters, and its URL is what status shows."""

import pytest

from penstock.resources import service


def test_it_leads_to_the_limiter_by_number(make_backend):
    spec = service.build(make_backend())["spec"]
    assert spec["ports"] == [{"name": "http", "port": 80, "targetPort": 8000, "protocol": "TCP"}]
    assert spec["selector"] == {"serving.penstock.dev/backend": "smol", "app.kubernetes.io/managed-by": "penstock"}


def test_it_never_leads_to_a_replica_that_is_not_ready(make_backend):
    assert service.build(make_backend())["spec"]["publishNotReadyAddresses"] is False


@pytest.mark.parametrize(
    ("port", "url"), [(80, "http://smol.team.svc"), (8080, "http://smol.team.svc:8080")], ids=["default", "other"]
)
def test_url(make_backend, port, url):
    backend = make_backend(service={"port": port})
    assert service.url(backend) == url
    assert service.build(backend)["spec"]["ports"][0]["port"] == port


def test_its_type_and_annotations_are_the_backend_s(make_backend):
    annotations = {"service.beta.kubernetes.io/aws-load-balancer-internal": "true"}
    built = service.build(make_backend(service={"type": "LoadBalancer", "annotations": annotations}))
    assert built["spec"]["type"] == "LoadBalancer"
    assert built["metadata"]["annotations"] == annotations
    plain = service.build(make_backend())
    assert plain["spec"]["type"] == "ClusterIP"
    assert "annotations" not in plain["metadata"]
