"""Why pods are refused, in the words of real API servers, and what has to change before they are not."""

import pytest

from penstock.status.refusals import Gate, Obstacle, obstacle_of, trouble_of

QUOTA = (
    'pods "smol-6d4cf56db6-x7k2p" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2'
)
CPU = (
    'pods "smol-1" is forbidden: exceeded quota: compute, requested: limits.memory=1Gi,requests.cpu=300m, '
    "used: limits.memory=0,requests.cpu=1, limited: limits.memory=1,requests.cpu=1"
)
MUST = 'pods "smol-1" is forbidden: failed quota: compute: must specify limits.cpu for: engine,limiter'
LIMITS = 'pods "smol-1" is forbidden: [maximum memory usage per Container is 64Mi, but limit is 1Gi]'
DEFAULTED = (
    'Pod "smol-1" is invalid: spec.containers[0].resources.requests: Invalid value: "64Mi": must be less than or equal '
    "to memory limit of 32Mi"
)
SECURITY = (
    'pods "smol-1" is forbidden: violates PodSecurity "restricted:latest": hostPath volumes (volume "x" uses '
    "restricted volume type)"
)
ACCOUNT = 'pods "smol-1" is forbidden: error looking up service account team/smol: serviceaccount "smol" not found'
WEBHOOK = 'admission webhook "policy.example" denied the request: no latest tags'

REFUSALS = [
    pytest.param(
        QUOTA,
        "QuotaExceeded",
        "a ResourceQuota leaves no room for the pods: exceeded quota: few, requested: pods=1, used: pods=2",
        Obstacle(Gate.QUOTA, "few", ("pods",)),
        id="quota on pods",
    ),
    pytest.param(
        CPU,
        "QuotaExceeded",
        "exceeded quota: compute, requested: limits.memory=1Gi,requests.cpu=300m",
        Obstacle(Gate.QUOTA, "compute", ("limits.memory", "requests.cpu")),
        id="quota on two resources",
    ),
    pytest.param(MUST, "QuotaExceeded", "must specify limits.cpu", None, id="quota that demands limits"),
    pytest.param(
        LIMITS,
        "PodsRefused",
        "a LimitRange of the namespace refuses the pods: [maximum memory usage per Container is 64Mi",
        Obstacle(Gate.LIMIT_RANGE),
        id="LimitRange",
    ),
    pytest.param(
        DEFAULTED,
        "PodsRefused",
        "a LimitRange of the namespace refuses the pods: spec.containers[0].resources.requests: Invalid value",
        Obstacle(Gate.LIMIT_RANGE),
        id="default of a LimitRange",
    ),
    pytest.param(
        SECURITY,
        "PodsRefused",
        'the namespace\'s Pod Security refuses the pods: violates PodSecurity "restricted:latest"',
        Obstacle(Gate.POD_SECURITY),
        id="Pod Security",
    ),
    pytest.param(ACCOUNT, "PodsRefused", 'serviceaccount "smol" not found', None, id="missing ServiceAccount"),
    pytest.param(WEBHOOK, "PodsRefused", WEBHOOK, None, id="somebody's webhook"),
    pytest.param("", "PodsRefused", "FailedCreate", None, id="no message"),
]


def refused(make_deployment, message, status="True"):
    failure = {"status": status, "reason": "FailedCreate", "message": message}
    return make_deployment(ReplicaFailure=failure)


@pytest.mark.parametrize(("message", "reason", "words", "obstacle"), REFUSALS)
def test_a_refusal_has_a_reason_and_an_obstacle(make_deployment, message, reason, words, obstacle):
    deployment = refused(make_deployment, message)
    trouble = trouble_of(deployment)
    assert (trouble.reason, trouble.stalled) == (reason, False)
    assert words in trouble.message
    assert obstacle_of(deployment) == obstacle


def test_each_try_has_another_pod_name_and_the_same_message(make_deployment):
    another = QUOTA.replace("x7k2p", "p2k7x")
    assert trouble_of(refused(make_deployment, another)) == trouble_of(refused(make_deployment, QUOTA))


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_refusal_that_is_over_is_none(make_deployment, status):
    deployment = refused(make_deployment, QUOTA, status)
    assert trouble_of(deployment) is None
    assert obstacle_of(deployment) is None


def test_no_deployment_no_refusal():
    assert trouble_of(None) is None
    assert obstacle_of(None) is None
