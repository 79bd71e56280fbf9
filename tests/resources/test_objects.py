"""The few questions asked of every object."""

import pytest

from penstock.resources.objects import Key, controller_of, is_controlled_by, is_terminating, key_of


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        ([], False),
        ([{"uid": "a"}], False),
        ([{"uid": "a", "controller": False}], False),
        ([{"uid": "b", "controller": True}], False),
        ([{"uid": "b"}, {"uid": "a", "controller": True}], True),
    ],
    ids=["none", "owner only", "not the controller", "another controller", "ours"],
)
def test_only_the_controller_counts(references, expected):
    assert is_controlled_by({"metadata": {"name": "x", "ownerReferences": references}}, "a") is expected


def test_an_object_without_references_has_no_controller():
    assert controller_of({"metadata": {"name": "x"}}) is None


def test_keys_are_written_as_people_write_them():
    assert str(key_of({"metadata": {"name": "x", "namespace": "n"}})) == "n/x"
    assert str(key_of({"metadata": {"name": "x"}})) == "x"
    assert key_of({"metadata": {"name": "x", "namespace": "n"}}) == Key("n", "x")


def test_deletion_begins_with_a_timestamp():
    assert is_terminating({"metadata": {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert not is_terminating({"metadata": {"name": "x"}})
