"""The PodDisruptionBudget: there when it protects something, and never one that blocks for ever."""

import pytest

from penstock.resources import disruption


@pytest.mark.parametrize(
    ("replicas", "field", "maximum"),
    [
        (0, {}, None),
        (1, {}, None),
        (2, {}, "10%"),
        (200, {}, "10%"),
        (3, {"budget": "Auto"}, "10%"),
        (3, {"maxUnavailable": 2}, 2),
        (1, {"maxUnavailable": 1}, 1),
        (3, {"budget": "Disabled"}, None),
        (3, {"budget": "Disabled", "maxUnavailable": 2}, None),
    ],
    ids=[
        "none of no replica",
        "none of one replica, which it could only hold for ever",
        "a share of two, rounded up to one",
        "a share of many",
        "Auto is the default",
        "what the backend says",
        "what the backend says, also of one replica",
        "none where disabled",
        "none where disabled, whatever else it says",
    ],
)
def test_how_many_may_be_away(make_backend, replicas, field, maximum):
    built = disruption.build(make_backend(replicas=replicas, disruption=field))
    assert (built and built["spec"]["maxUnavailable"]) == maximum


def test_replicas_that_serve_nobody_hold_nothing_up(make_backend):
    built = disruption.build(make_backend(replicas=2))
    assert built["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_it_speaks_of_the_backend_s_own_replicas(make_backend):
    built = disruption.build(make_backend(replicas=2))
    assert built["metadata"]["name"] == "smol"
    assert built["spec"]["selector"]["matchLabels"] == {
        "serving.penstock.dev/backend": "smol",
        "app.kubernetes.io/managed-by": "penstock",
    }


def test_scaling_writes_it_once_at_most(make_backend):
    assert disruption.build(make_backend(replicas=2)) == disruption.build(make_backend(replicas=20))


def test_a_suspended_backend_keeps_it(make_backend):
    assert disruption.build(make_backend(replicas=2, suspend=True)) is not None
