"""The limiter reads back what the builder wrote."""

from penstock.api.policy import Policy
from penstock.resources import configmap


def test_the_policy_comes_from_the_spec(make_backend):
    backend = make_backend(
        limiter={"logLevel": "Debug", "maximumBodyMebibytes": 7}, admission={"mode": "Shadow"}, tenants={"default": {}}
    )
    built = configmap.build(backend)
    policy, unknown = Policy.parse(built["data"]["policy.json"])
    assert policy == Policy.of(backend.spec)
    assert (policy.log_level, policy.maximum_body_mebibytes) == ("Debug", 7)
    assert policy.admission.mode == "Shadow"
    assert unknown == ()
    assert built["metadata"]["name"] == "smol-limiter"


def test_it_holds_no_reference_to_a_secret(make_backend):
    backend = make_backend(
        tenants={"keysSecretRef": {"name": "team-keys"}},
        admission={"sharedStore": {"redis": {"secretRef": {"name": "team-store"}}}},
    )
    text = configmap.build(backend)["data"]["policy.json"]
    assert "team-keys" not in text
    assert "team-store" not in text
