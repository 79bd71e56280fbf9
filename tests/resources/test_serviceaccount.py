"""The pods' identity may do nothing."""

from penstock.resources import serviceaccount


def test_it_mounts_no_token(make_backend):
    built = serviceaccount.build(make_backend())
    assert built["automountServiceAccountToken"] is False
    assert built["metadata"]["name"] == "smol"
