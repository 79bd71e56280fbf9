"""The audit log as a list of calls, in the words of RBAC."""

import json

import pytest

from e2e.audit import AuditLog, server_arguments

OPERATOR = "system:serviceaccount:penstock-system:penstock-operator"


def entry(audit_id="1", *, verb="patch", user=OPERATOR, code=200, **reference):
    return {
        "auditID": audit_id,
        "stage": "ResponseComplete",
        "requestURI": "/apis/x",
        "verb": verb,
        "user": {"username": user},
        "userAgent": "penstock",
        "objectRef": {"resource": "llmbackends", "apiGroup": "serving.penstock.dev", "name": "a", **reference},
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": "2026-11-29T12:00:00.123456Z",
    }


@pytest.fixture
def log(tmp_path):
    return AuditLog(tmp_path / "audit.log")


def append(log, *entries):
    with log.path.open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in entries)


def test_a_log_that_does_not_exist_yet_is_empty(log):
    assert (log.position(), log.calls()) == (0, [])


def test_a_subresource_is_named_as_rbac_names_it(log):
    append(log, entry(subresource="status"), entry("2"))
    assert [call.resource for call in log.calls()] == ["llmbackends/status", "llmbackends"]


def test_a_path_that_is_no_resource_has_none(log):
    without = entry(verb="get")
    del without["objectRef"]
    append(log, without)
    assert [(call.verb, call.resource, call.path) for call in log.calls()] == [("get", "", "/apis/x")]


def test_only_what_came_after_a_position(log):
    append(log, entry("1", name="before"))
    start = log.position()
    append(log, entry("2", name="after"))
    assert [call.name for call in log.calls(start)] == ["after"]


def test_the_two_entries_of_a_watch_are_one_call(log):
    append(log, entry("w", verb="watch"), entry("2"), entry("w", verb="watch"))
    assert [call.verb for call in log.calls()] == ["watch", "patch"]


def test_a_line_that_is_being_written_is_left_for_later(log):
    append(log, entry("1"))
    with log.path.open("a") as file:
        file.write('{"auditID": "2", "ver')
    assert len(log.calls()) == 1


def test_calls_by_user_verb_and_resource(log):
    append(log, entry("1"), entry("2", verb="get"), entry("3", user="somebody"), entry("4", resource="pods"))
    assert len(log.calls(user=OPERATOR)) == 3
    assert len(log.calls(verbs=["get"])) == 1
    assert len(log.calls(resource="pods")) == 1
    assert len(log.writes(user=OPERATOR)) == 2


@pytest.mark.parametrize(
    ("code", "decision", "denied"),
    [
        pytest.param(200, "allow", False, id="answered"),
        pytest.param(403, "forbid", True, id="no such right"),
        pytest.param(403, "allow", False, id="forbidden by a quota"),
        pytest.param(401, None, True, id="not recognised"),
        pytest.param(404, "allow", False, id="not there"),
    ],
)
def test_what_was_denied(log, code, decision, denied):
    annotations = {"authorization.k8s.io/decision": decision} if decision else {}
    append(log, entry(code=code) | {"annotations": annotations})
    assert [call.denied for call in log.calls()] == [denied]


def test_the_policy_logs_writes_of_all_and_every_call_of_the_operator(tmp_path):
    arguments = server_arguments(tmp_path / "config" / "policy.json", tmp_path / "audit.log")
    writes, operator, rest = json.loads((tmp_path / "config" / "policy.json").read_text())["rules"]
    assert writes["verbs"] == ["create", "delete", "deletecollection", "patch", "update"]
    assert operator["userGroups"] == ["system:serviceaccounts:penstock-system"]
    assert rest == {"level": "None"}
    assert f"--audit-log-path={tmp_path / 'audit.log'}" in arguments
