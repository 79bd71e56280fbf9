"""The ControllerRevision, and what the Deployment says about it."""

import kubernetes_validate

from penstock.resources import revision

TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "engine", "image": "i"}]}}


def build(backend):
    return revision.build(
        backend, name="smol-0123456789", number=3, pod_spec="spec", renderer="renderer", template=TEMPLATE
    )


def test_it_holds_the_template_and_what_it_was_made_from(make_backend):
    built = build(make_backend())
    assert built["metadata"]["name"] == "smol-0123456789"
    assert built["revision"] == 3
    assert built["data"] == {"podSpec": "spec", "renderer": "renderer", "template": TEMPLATE}


def test_it_belongs_to_the_backend_like_every_child(make_backend):
    metadata = build(make_backend())["metadata"]
    assert metadata["namespace"] == "team"
    assert metadata["labels"]["serving.penstock.dev/backend"] == "smol"
    assert metadata["ownerReferences"][0]["controller"] is True


def test_it_is_valid_to_kubernetes(make_backend):
    kubernetes_validate.validate(build(make_backend()), "1.34", strict=True)


def test_the_deployment_says_what_its_template_was_made_from():
    deployment = {"kind": "Deployment", "metadata": {"name": "x", "annotations": {"other": "kept"}}, "spec": {}}
    marked = revision.mark(deployment, made_from="spec.renderer")
    assert marked["metadata"]["annotations"] == {"other": "kept", revision.MADE_FROM_ANNOTATION: "spec.renderer"}
    assert deployment["metadata"]["annotations"] == {"other": "kept"}


def test_other_children_say_nothing():
    service = {"kind": "Service", "metadata": {"name": "x"}}
    assert revision.mark(service, made_from="spec.renderer") is service
