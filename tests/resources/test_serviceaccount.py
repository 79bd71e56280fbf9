"""The pods' identity may do nothing."""

from penstock.resources import serviceaccount


def test_it_mounts_no_token(make_backend):
    built = serviceaccount.build(make_backend())
    assert built["automountServiceAccountToken"] is False
    assert built["metadata"]["name"] == "smol"


def test_a_backend_that_names_another_gets_that_one_and_still_no_token(make_backend, template):
    backend = make_backend(pod={"serviceAccountName": "team-models"})
    assert serviceaccount.build(backend) is None
    pod = template(backend)["spec"]
    assert pod["serviceAccountName"] == "team-models"
    assert pod["automountServiceAccountToken"] is False
