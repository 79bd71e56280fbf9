"""Added entries of the few fields that are ours alone are taken out; everything else is left to the apply."""

import pytest

from penstock.kube.kinds import CONFIG_MAP, DEPLOYMENT, SERVICE
from penstock.reconcile.repair import give_up, repair, replace

DESIRED = {"spec": {"selector": {"a": "1"}, "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}}


def service(*, selector=None, ports=None):
    return {"spec": {"selector": selector or {"a": "1"}, "ports": ports or [{"port": 80, "protocol": "TCP"}]}}


@pytest.mark.parametrize(
    "held",
    [
        service(),
        service(selector={"a": "2"}),
        service(ports=[{"port": 80, "targetPort": 1}]),
        {"spec": {}},
    ],
    ids=["as desired", "changed label", "changed target", "removed fields"],
)
def test_what_an_apply_puts_right_is_left_to_it(held):
    assert repair(SERVICE, DESIRED, held) is None


@pytest.mark.parametrize(
    ("held", "patch"),
    [
        (service(selector={"a": "1", "b": "2"}), {"spec": {"selector": {"a": "1", "b": None}}}),
        (service(ports=[{"port": 81}]), {"spec": {"ports": DESIRED["spec"]["ports"]}}),
        (
            service(ports=[{"port": 80, "protocol": "TCP"}, {"port": 80, "protocol": "UDP"}]),
            {"spec": {"ports": DESIRED["spec"]["ports"]}},
        ),
    ],
    ids=["added label", "another port", "another protocol"],
)
def test_added_entries_are_taken_out(held, patch):
    assert repair(SERVICE, DESIRED, held) == patch


def test_other_kinds_are_left_alone():
    assert repair(CONFIG_MAP, {"data": {}}, {"data": {"x": "y"}}) is None


def test_a_refused_deployment_gets_its_lists_written_whole():
    pod = {"containers": [{"name": "engine"}], "volumes": [], "serviceAccountName": "x"}
    desired = {"spec": {"replicas": 2, "template": {"spec": pod}}}
    written = {"spec": {"template": {"spec": {"containers": [{"name": "engine"}], "volumes": []}}}}
    assert replace(DEPLOYMENT, desired, desired) == written


def test_a_refused_service_is_mended_only_where_something_was_added():
    assert replace(SERVICE, DESIRED, service()) is None
    assert replace(SERVICE, DESIRED, service(ports=[{"port": 81}])) == {"spec": {"ports": DESIRED["spec"]["ports"]}}


def test_ownership_taken_by_a_patch_is_given_up_and_all_other_kept():
    mine, other = (
        {"manager": "penstock", "operation": "Apply"},
        {"manager": "kubectl-edit", "operation": "Update"},
    )
    held = {"metadata": {"resourceVersion": "7", "managedFields": [mine, other]}}
    assert give_up(held) is None
    held["metadata"]["managedFields"].append({"manager": "penstock", "operation": "Update"})
    assert give_up(held) == {"metadata": {"resourceVersion": "7", "managedFields": [mine, other]}}
