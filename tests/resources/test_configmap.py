"""The limiter reads back what the builder wrote."""

from dataclasses import replace

from penstock.api.policy import Policy
from penstock.resources import configmap, deployment
from penstock.resources.facts import UNKNOWN


def test_the_policy_comes_from_the_spec(make_backend, settings):
    backend = make_backend(
        limiter={"logLevel": "Debug", "maximumBodyMebibytes": 7}, admission={"mode": "Shadow"}, tenants={"default": {}}
    )
    built = configmap.build(backend, settings)
    policy, unknown = Policy.parse(built["data"]["policy.json"])
    assert policy == Policy.of(backend.spec)
    assert (policy.log_level, policy.maximum_body_mebibytes) == ("Debug", 7)
    assert policy.admission.mode == "Shadow"
    assert unknown == ()
    assert built["metadata"]["name"] == "smol-limiter"


def test_it_holds_no_reference_to_a_secret(make_backend, settings):
    backend = make_backend(
        tenants={"keysSecretRef": {"name": "team-keys"}},
        admission={"sharedStore": {"redis": {"secretRef": {"name": "team-store"}}}},
    )
    text = configmap.build(backend, settings)["data"]["policy.json"]
    assert "team-keys" not in text
    assert "team-store" not in text


def test_the_push_key_is_policy_and_touches_no_pod(make_backend, settings):
    keyed = replace(settings, push_public_keys=("A" * 43 + "=",))
    backend = make_backend()
    policy, _ = Policy.parse(configmap.build(backend, keyed)["data"]["policy.json"])
    assert policy.trusted_keys == keyed.push_public_keys
    assert configmap.policy(backend, keyed) == configmap.build(backend, keyed)["data"]["policy.json"]
    assert deployment.template(backend, keyed, UNKNOWN) == deployment.template(backend, settings, UNKNOWN)
