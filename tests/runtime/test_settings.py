"""Settings are frozen, checked, and explained field by field."""

import pytest
from pydantic import ValidationError

from penstock.runtime.settings import OperatorSettings


def test_only_the_image_must_be_given():
    settings = OperatorSettings(image="penstock:1")
    assert settings.namespace == "penstock-system"
    assert settings.watch_namespaces == ()
    with pytest.raises(ValidationError, match="image"):
        OperatorSettings()


@pytest.mark.parametrize(
    "wrong",
    [{"workers": 0}, {"resync_seconds": 0}, {"log_level": "loud"}, {"namespace": ""}, {"unknown": 1}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_wrong_values_are_refused(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        OperatorSettings(image="penstock:1", **wrong)


def test_settings_do_not_change():
    with pytest.raises(ValidationError, match="frozen"):
        OperatorSettings(image="penstock:1").workers = 2


@pytest.mark.parametrize("name", list(OperatorSettings.model_fields))
def test_every_field_has_a_paragraph(name):
    description = OperatorSettings.model_fields[name].description
    assert description
    assert description.rstrip().endswith(".")


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ({"lease_duration_seconds": 10}, "shorter than --lease-duration-seconds"),
        ({"lease_renew_deadline_seconds": 20}, "shorter than --lease-duration-seconds"),
        ({"lease_retry_seconds": 10}, "longer than --lease-retry-seconds"),
    ],
    ids=["duration", "deadline", "retry"],
)
def test_a_leader_has_stopped_before_another_may_lead(times, words):
    with pytest.raises(ValidationError, match=words):
        OperatorSettings(image="penstock:1", **times)


@pytest.mark.parametrize("name", ["lease_duration_seconds", "lease_retry_seconds"])
def test_of_a_time_that_is_wrong_by_itself_only_that_is_said(name):
    with pytest.raises(ValidationError) as told:
        OperatorSettings(image="penstock:1", **{name: -1})
    assert [one["loc"] for one in told.value.errors()] == [(name,)]
