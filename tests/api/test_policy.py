"""The limiter's policy file."""

from __future__ import annotations

import pytest

from penstock.api.backend import LogLevel
from penstock.api.errors import InvalidPolicy
from penstock.api.policy import Policy


def test_an_empty_file_gives_the_built_in_values() -> None:
    assert Policy.parse("{}") == (Policy(), ())
    assert Policy().maximum_body_mebibytes == 32


def test_known_values_are_read_and_unknown_keys_are_named() -> None:
    policy, unknown = Policy.parse('{"logLevel": "Debug", "zeta": 1, "maximumBodyMebibytes": 8, "admission": {}}')
    assert policy == Policy(log_level=LogLevel.DEBUG, maximum_body_mebibytes=8)
    assert unknown == ("admission", "zeta")


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
        ('{"maximumBodyMebibytes": 0}', "`maximumBodyMebibytes`"),
        ('{"maximumBodyMebibytes": "32"}', "`maximumBodyMebibytes`"),
        ('{"maximumBodyMebibytes": null}', "`maximumBodyMebibytes`"),
    ],
)
def test_a_policy_that_cannot_be_used_says_where(text: str, words: str) -> None:
    with pytest.raises(InvalidPolicy, match=words):
        Policy.parse(text)
