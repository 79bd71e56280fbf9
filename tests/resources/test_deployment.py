"""The Deployment: how many replicas, from which template, and how they are replaced."""

import copy

import pytest

from penstock.resources import deployment


@pytest.fixture
def build(template):
    def build(backend, **options):
        return deployment.build(backend, template(backend), **options)

    return build


def test_the_template_is_used_as_it_is(make_backend, template):
    kept = template(make_backend())
    kept["metadata"]["labels"]["rendered-by"] = "an earlier release"
    before = copy.deepcopy(kept)
    built = deployment.build(make_backend(replicas=3), kept)
    assert built["spec"]["template"] == before
    assert kept == before
    assert built["spec"]["replicas"] == 3


def test_the_revision_is_named_on_the_deployment_and_not_on_its_pods(make_backend, build):
    built = build(make_backend(), revision="smol-0123456789")
    assert built["metadata"]["annotations"] == {"serving.penstock.dev/revision": "smol-0123456789"}
    assert "revision" not in str(built["spec"]["template"]["metadata"])
    assert "annotations" not in build(make_backend())["metadata"]


def test_the_progress_deadline_leaves_room_for_start_and_drain(make_backend, build):
    built = build(make_backend(health={"startupTimeoutSeconds": 90}, drain={"timeoutSeconds": 7}))
    grace_seconds = built["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert built["spec"]["progressDeadlineSeconds"] == 90 + grace_seconds + 600


def test_a_new_replica_is_ready_before_an_old_one_goes(make_backend, build):
    assert build(make_backend())["spec"]["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }


def test_a_pause_of_the_deployment_is_taken_back(make_backend, build):
    assert build(make_backend())["spec"]["paused"] is False


def test_the_selector_has_two_fixed_labels_that_the_pods_carry(make_backend, build):
    spec = build(make_backend())["spec"]
    selector = spec["selector"]["matchLabels"]
    assert selector == {"serving.penstock.dev/backend": "smol", "app.kubernetes.io/managed-by": "penstock"}
    assert selector.items() <= spec["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("Auto", {"maxSurge": 1, "maxUnavailable": 0}),
        ("Surge", {"maxSurge": 1, "maxUnavailable": 0}),
        ("InPlace", {"maxSurge": 0, "maxUnavailable": 1}),
    ],
)
def test_the_strategy_says_in_which_order_replicas_come_and_go(make_backend, build, strategy, expected):
    built = build(make_backend(rollout={"strategy": strategy}))["spec"]["strategy"]
    assert built == {"type": "RollingUpdate", "rollingUpdate": expected}


def test_a_progress_deadline_of_the_backend_s_own_comes_first(make_backend, build):
    built = build(make_backend(rollout={"progressDeadlineSeconds": 77}))
    assert built["spec"]["progressDeadlineSeconds"] == 77


def test_a_download_is_given_as_long_as_the_load(make_backend, build):
    health = {"startupTimeoutSeconds": 1000}
    hub = {"name": "m", "source": {"huggingFace": {"repository": "o/m", "file": "m.gguf"}}}
    local, downloaded = build(make_backend(health=health)), build(make_backend(health=health, model=hub))
    deadlines = [built["spec"]["progressDeadlineSeconds"] for built in (local, downloaded)]
    assert deadlines[1] - deadlines[0] == 1000


def test_what_is_applied_is_no_part_of_what_is_kept(make_backend, template):
    kept = template(make_backend())
    built = deployment.build(make_backend(), kept)
    built["spec"]["template"]["spec"]["containers"][0]["image"] = "changed"
    assert kept == template(make_backend())
