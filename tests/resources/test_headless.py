"""The headless Service resolves to the ready replicas."""

from penstock.resources import headless


def test_its_name_resolves_to_every_ready_replica(make_backend):
    built = headless.build(make_backend())
    assert built["metadata"]["name"] == "smol-replicas"
    assert built["spec"]["clusterIP"] == "None"
    assert built["spec"]["publishNotReadyAddresses"] is False
    assert built["spec"]["selector"] == {
        "serving.penstock.dev/backend": "smol",
        "app.kubernetes.io/managed-by": "penstock",
    }


def test_its_port_is_the_limiters_whatever_the_service_s_is(make_backend):
    built = headless.build(make_backend(service={"port": 8080}))
    assert built["spec"]["ports"] == [{"name": "http", "port": 8000, "targetPort": 8000, "protocol": "TCP"}]


def test_the_longest_name_still_fits(make_backend):
    backend = make_backend()
    longest = backend.model_copy(update={"metadata": backend.metadata.model_copy(update={"name": "a" * 52})})
    assert len(headless.name(longest)) <= 63
