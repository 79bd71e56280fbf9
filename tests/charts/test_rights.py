"""The operator's rights are what its table of kinds asks for, and nothing beside."""

import itertools

import pytest

from penstock.kube import kinds
from penstock.runtime import drainkey, pushkey
from penstock.runtime.settings import OperatorSettings

LEASE_NAME = OperatorSettings.model_fields["lease_name"].default

OF_CHILDREN = {"create", "delete", "get", "list", "patch", "watch"}
"""Made and repaired by server-side apply, looked for before the first one, watched, removed when no longer wanted."""

OF_OTHERS = {
    kinds.LLM_BACKEND: {"list", "watch"},
    kinds.POD: {"list", "watch"},
    kinds.EVENT: {"create", "patch", "list"},
    kinds.PERSISTENT_VOLUME_CLAIM: {"get"},
    kinds.RESOURCE_QUOTA: {"get"},
    kinds.LIMIT_RANGE: {"list"},
}
OUTSIDE_THE_TABLE = {
    # Its labels say which Pod Security level refuses pods. A Role in the namespace is enough.
    ("", "namespaces"): {"get"},
}
OF_SUBRESOURCES = {
    (kinds.LLM_BACKEND.group, "llmbackends/status"): {"patch"},
    # Owner references with blockOwnerDeletion need it where the cluster checks that.
    (kinds.LLM_BACKEND.group, "llmbackends/finalizers"): {"update"},
}
IN_ITS_OWN_NAMESPACE = {
    (kinds.SECRET, None): {"create"},
    (kinds.SECRET, drainkey.SECRET_NAME): {"get"},
    (kinds.SECRET, pushkey.SECRET_NAME): {"get"},
    (kinds.LEASE, None): {"create"},
    (kinds.LEASE, LEASE_NAME): {"get", "update"},
}


def expected():
    rights = {(kind.group, kind.plural): OF_CHILDREN for kind in kinds.CHILD_KINDS}
    rights |= {(kind.group, kind.plural): verbs for kind, verbs in OF_OTHERS.items()}
    return rights | OUTSIDE_THE_TABLE | OF_SUBRESOURCES


def granted(role):
    rights = {}
    for rule in role["rules"]:
        assert set(rule) <= {"apiGroups", "resources", "verbs", "resourceNames"}
        names = rule.get("resourceNames", [None])
        for group, resource, name in itertools.product(rule["apiGroups"], rule["resources"], names):
            assert (group, resource, name) not in rights, "granted twice"
            rights[group, resource, name] = set(rule["verbs"])
    return rights


@pytest.fixture
def roles(installed):
    return {obj["metadata"]["name"]: obj for obj in installed if obj["kind"] in ("Role", "ClusterRole")}


def test_every_kind_of_the_table_is_accounted_for():
    """A kind that is added there must be given its verbs here, and in the chart."""
    named = {*kinds.CHILD_KINDS, *OF_OTHERS, *(kind for kind, _ in IN_ITS_OWN_NAMESPACE)}
    assert {value for value in vars(kinds).values() if isinstance(value, kinds.Kind)} == named


def test_rights_on_the_cluster_are_those_of_the_table(installed):
    (role,) = (obj for obj in installed if obj["kind"] == "ClusterRole" and "aggregate" not in str(obj["metadata"]))
    assert granted(role) == {(*place, None): verbs for place, verbs in expected().items()}


def test_rights_in_the_own_namespace_are_the_lease_and_the_keys(installed):
    (role,) = (obj for obj in installed if obj["kind"] == "Role")
    assert role["metadata"]["namespace"] == "penstock-system"
    assert granted(role) == {
        (kind.group, kind.plural, name): verbs for (kind, name), verbs in IN_ITS_OWN_NAMESPACE.items()
    }


def test_no_secret_of_users_can_be_read(roles):
    for role in roles.values():
        for rule in role["rules"]:
            if "secrets" in rule["resources"]:
                assert role["kind"] == "Role"
                assert rule["verbs"] == ["create"] or rule["resourceNames"] == [
                    drainkey.SECRET_NAME,
                    pushkey.SECRET_NAME,
                ]


def test_nothing_is_granted_by_wildcard_and_all_is_in_alphabetical_order(roles):
    for role in roles.values():
        places = [(rule["apiGroups"], rule["resources"]) for rule in role["rules"]]
        assert places == sorted(places)
        for rule in role["rules"]:
            assert "*" not in rule["apiGroups"] + rule["resources"] + rule["verbs"]
            assert rule["resources"] == sorted(rule["resources"])
            assert rule["verbs"] == sorted(rule["verbs"])


@pytest.mark.parametrize(("name", "targets"), [("penstock-edit", {"admin", "edit"}), ("penstock-view", {"view"})])
def test_users_of_a_namespace_get_rights_on_its_backends(roles, name, targets):
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    labels = roles[name]["metadata"]["labels"]
    assert {label.removeprefix(prefix) for label in labels if label.startswith(prefix)} == targets
    assert {group for rule in roles[name]["rules"] for group in rule["apiGroups"]} == {kinds.LLM_BACKEND.group}
