"""The limiter reads back what the builder wrote."""

from penstock.api.policy import Policy
from penstock.resources import configmap


def test_the_policy_comes_from_the_spec(make_backend):
    built = configmap.build(make_backend(limiter={"logLevel": "Debug", "maximumBodyMebibytes": 7}))
    policy, unknown = Policy.parse(built["data"]["policy.json"])
    assert (policy.log_level, policy.maximum_body_mebibytes) == ("Debug", 7)
    assert unknown == ()
    assert built["metadata"]["name"] == "smol-limiter"
