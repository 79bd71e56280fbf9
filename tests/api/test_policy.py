"""The limiter's policy file."""

from __future__ import annotations

import copy
import json

import pytest

from penstock.api.admission import AdmissionMode
from penstock.api.backend import LLMBackend, LogLevel
from penstock.api.errors import InvalidPolicy
from penstock.api.policy import Policy
from tests.api.complete import EVERY_FIELD_OF_LLAMA_CPP, VALID
from tests.api.examples import CRD_SCHEMA, backend, defaulted, without_empty


def test_an_empty_file_gives_the_built_in_values() -> None:
    assert Policy.parse("{}") == (Policy(), ())
    assert Policy().maximum_body_mebibytes == 32


def test_known_values_are_read_and_unknown_keys_are_named() -> None:
    policy, unknown = Policy.parse('{"logLevel": "Debug", "zeta": 1, "maximumBodyMebibytes": 8, "omega": {}}')
    assert policy == Policy(log_level=LogLevel.DEBUG, maximum_body_mebibytes=8)
    assert unknown == ("omega", "zeta")


def test_unknown_keys_are_found_at_every_depth() -> None:
    text = '{"admission": {"mode": "Shadow", "queue": {"x": 1}, "rateLimits": [{"name": "a", "limit": 1, "y": 2}]}}'
    policy, unknown = Policy.parse(text)
    assert policy.admission.mode is AdmissionMode.SHADOW
    assert unknown == ("admission.queue.x", "admission.rateLimits.y")


@pytest.mark.parametrize(("wanted", "sharing"), [(3, 3), (0, 1)], ids=["three", "none now"])
def test_it_says_among_how_many_replicas_quotas_are_divided(wanted: int, sharing: int) -> None:
    assert Policy.of(LLMBackend.parse(backend(replicas=wanted)).spec).replicas == sharing


def test_it_says_everything_of_a_spec_that_may_change_while_replicas_run() -> None:
    """Only references to Secrets, and what belongs to the pod, stay out."""
    body = EVERY_FIELD_OF_LLAMA_CPP["spec"]
    policy = Policy.of(LLMBackend.parse(EVERY_FIELD_OF_LLAMA_CPP).spec).to_dict()
    wanted = copy.deepcopy(body)
    wanted["admission"].pop("sharedStore")
    wanted["tenants"].pop("keysSecretRef")
    wanted["health"].pop("startupTimeoutSeconds")
    for part in ("admission", "tenants", "resilience", "health"):
        assert without_empty(policy[part]) == without_empty(
            defaulted(CRD_SCHEMA["properties"]["spec"]["properties"][part], wanted[part])
        )
    assert policy["logLevel"] == "Debug"
    assert policy["maximumBodyMebibytes"] == 64
    assert policy["sharedStoreUrl"] == "redis://redis.cache.svc:6379/0"


def test_it_is_read_back_as_it_was_written() -> None:
    for body in VALID.values():
        policy = Policy.of(LLMBackend.parse(body).spec)
        assert Policy.parse(policy.render()) == (policy, ())


def test_no_secret_is_named_in_it() -> None:
    text = "".join(Policy.of(LLMBackend.parse(body).spec).render() for body in VALID.values())
    assert "ecretRef" not in text


def test_the_built_in_classes_are_written_out() -> None:
    """A limiter of another release then has the same classes as the operator."""
    policy = Policy.of(LLMBackend.parse(backend()).spec)
    assert [(one.name, one.ceiling_percent, one.max_wait_seconds) for one in policy.admission.priority_classes] == [
        ("interactive", 100, 10),
        ("normal", 90, 30),
        ("batch", 60, 60),
    ]
    assert [one.name for one in policy.admission.priority_classes if one.sheddable] == ["batch"]


def test_without_a_file_there_are_the_same_classes() -> None:
    assert Policy().admission.classes == Policy.of(LLMBackend.parse(backend()).spec).admission.classes


def test_the_internal_spelling_of_a_key_is_unknown() -> None:
    assert Policy.parse('{"log_level": "Debug"}') == (Policy(), ("log_level",))


def test_a_rendered_policy_is_read_back_and_is_always_the_same_text() -> None:
    policy = Policy(log_level=LogLevel.ERROR, maximum_body_mebibytes=1)
    assert Policy.parse(policy.render()) == (policy, ())
    assert policy.render() == Policy.model_validate(policy.model_dump()).render()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "must hold a JSON object"),
        ('{"logLevel": "Loud"}', "`logLevel`"),
        ('{"admission": {"mode": "Off"}}', "`admission.mode`"),
        ('{"admission": {"priorityClasses": [{"name": "gold"}]}}', "one class must be named `normal`"),
        ('{"maximumBodyMebibytes": 0}', "`maximumBodyMebibytes`"),
        ('{"maximumBodyMebibytes": "32"}', "`maximumBodyMebibytes`"),
        ('{"maximumBodyMebibytes": null}', "`maximumBodyMebibytes`"),
    ],
)
def test_a_policy_that_cannot_be_used_says_where(text: str, words: str) -> None:
    with pytest.raises(InvalidPolicy, match=words):
        Policy.parse(text)


def test_of_very_many_faults_the_first_are_told() -> None:
    text = json.dumps({"admission": {"rateLimits": [{}] * 5000}})
    with pytest.raises(InvalidPolicy, match=r"`admission\.rateLimits\.0\.name`.* and \d+ more") as found:
        Policy.parse(text)
    assert len(str(found.value)) < 1000


def test_a_policy_that_is_too_deep_is_refused_as_any_other() -> None:
    with pytest.raises(InvalidPolicy, match="not JSON"):
        Policy.parse("[" * 100_000)
