"""Every refusal becomes the error that says what to do."""

import pytest

from penstock.kube import errors

DEPLOYMENT = "(n/x; apps/v1, Kind=Deployment)"
CONVERSION = f"failed to convert new object {DEPLOYMENT} to proper version"


def make(status, *, message="words", reason="", retry_after=None):
    body = {"kind": "Status", "message": message, "reason": reason}
    return errors.from_response("apply Service n/x", status=status, body=body, retry_after=retry_after)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.Invalid),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (405, errors.Refused),
        (409, errors.Conflict),
        (415, errors.Invalid),
        (422, errors.Invalid),
        (429, errors.TooManyRequests),
        (500, errors.Unavailable),
        (503, errors.Unavailable),
    ],
)
def test_kinds_and_words(status, kind):
    error = make(status)
    assert type(error) is kind
    assert "apply Service n/x" in str(error)
    assert "words" in str(error)


@pytest.mark.parametrize(
    "message",
    [
        f"failed to create typed patch object {DEPLOYMENT}: .spec.template.spec.affinity: expected map, got &{{x}}",
        f"failed to create typed patch object {DEPLOYMENT}: .spec.oops: field not declared in schema",
        f"{CONVERSION}: unable to convert unstructured object to apps/v1, Kind=X: cannot convert float64 to int32",
    ],
    ids=["a field of another type", "an unknown field", "a fraction where a whole number belongs"],
)
def test_an_object_that_does_not_fit_its_type_is_invalid_though_the_answer_says_500(message):
    error = make(500, message=message)
    assert type(error) is errors.Invalid
    assert error.status == 500
    assert message in str(error)


@pytest.mark.parametrize(
    "message",
    [
        "etcdserver: request timed out",
        'admission webhook "w" said: failed to create typed patch object',
        f"{CONVERSION}: conversion webhook failed",
    ],
    ids=["the store", "another program's words", "a conversion webhook that is down"],
)
def test_other_failures_of_the_api_server_are_tried_again(message):
    assert type(make(500, message=message)) is errors.Unavailable


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        (" 7 ", 7.0),
        (None, 1.0),
        ("", 1.0),
        ("Wed, 21 Oct 2026", 1.0),
        ("-5", 1.0),
        ("\u00b2", 1.0),
        ("\u0667", 1.0),
        ("86400", 60.0),
        ("9" * 400, 60.0),
    ],
    ids=[
        "given",
        "with blanks",
        "absent",
        "empty",
        "a date",
        "negative",
        "a superscript digit",
        "a digit of another script",
        "a day",
        "more than a float holds",
    ],
)
def test_how_long_to_wait(header, seconds):
    assert make(429, retry_after=header).retry_after_seconds == seconds


def test_an_answer_without_a_body_still_says_something():
    error = errors.from_response("get Pod n/x", status=404, body=None, retry_after=None)
    assert str(error) == "get Pod n/x: HTTP 404"


def test_expired_credentials_come_with_advice():
    assert "log in again" in str(make(401))


@pytest.mark.parametrize(
    ("message", "missing"),
    [
        ('services is forbidden: User "x" cannot patch resource "services" in API group ""', True),
        ('pods "x" is forbidden: exceeded quota: q, requested: pods=1', False),
        ('admission webhook "w" denied the request', False),
    ],
    ids=["RBAC", "quota", "policy"],
)
def test_a_missing_right_is_told_from_a_quota_and_a_policy(message, missing):
    assert make(403, message=message).missing_rule is missing


def test_all_errors_have_one_root():
    for status in (400, 401, 403, 404, 409, 429, 500):
        assert isinstance(make(status), errors.KubeError)
