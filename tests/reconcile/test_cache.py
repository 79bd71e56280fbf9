"""The cache believes the newest report on each object, from wherever and in whatever order they come."""

import pytest

from penstock.kube.kinds import CONFIG_MAP, LLM_BACKEND, POD, SERVICE
from penstock.reconcile.cache import Cache, backend_of, keys_of
from penstock.resources.objects import Key


def make(version, *, name="x", uid="u", owner="smol", **more):
    reference = {"apiVersion": "serving.penstock.dev/v1alpha1", "kind": "LLMBackend", "name": owner, "uid": "o"}
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": uid,
        "resourceVersion": str(version),
        "managedFields": [{"manager": "m"}],
        "ownerReferences": [reference | {"controller": True}],
    }
    return {"metadata": metadata, **more}


def held(cache, kind=CONFIG_MAP):
    return cache.get(kind, Key("team", "x"))


def test_what_is_new_is_told():
    cache = Cache()
    assert cache.store(CONFIG_MAP, make(1, data={"a": "1"}))
    assert cache.store(CONFIG_MAP, make(2, data={"a": "2"}))
    assert held(cache)["data"] == {"a": "2"}


@pytest.mark.parametrize("version", [1, 2, 3], ids=["older", "the same", "newer without change"])
def test_what_is_not_new_is_not_told(version):
    cache = Cache()
    cache.store(CONFIG_MAP, make(2, data={"a": "1"}))
    assert not cache.store(CONFIG_MAP, make(version, data={"a": "1"}))


def test_an_older_report_does_not_replace_a_newer_one():
    cache = Cache()
    cache.store(CONFIG_MAP, make(10, data={"a": "new"}))
    assert not cache.store(CONFIG_MAP, make(9, data={"a": "old"}))
    assert held(cache)["data"] == {"a": "new"}


def test_versions_are_compared_as_numbers():
    cache = Cache()
    cache.store(CONFIG_MAP, make(9, data={"a": "old"}))
    assert cache.store(CONFIG_MAP, make(10, data={"a": "new"}))


@pytest.mark.parametrize("version", [4, 5], ids=["older than the deletion", "what was found to be gone"])
def test_a_late_answer_does_not_bring_a_deleted_object_back(version):
    cache = Cache()
    cache.store(CONFIG_MAP, make(1))
    assert cache.remove(CONFIG_MAP, make(5))
    assert not cache.store(CONFIG_MAP, make(version))
    assert held(cache) is None


def test_an_object_that_returns_is_taken():
    """One that left the selection and came back, or one made anew under the same name."""
    cache = Cache()
    cache.store(CONFIG_MAP, make(1))
    cache.remove(CONFIG_MAP, make(5))
    assert cache.store(CONFIG_MAP, make(6))
    assert held(cache) is not None


def test_the_late_end_of_an_old_object_does_not_remove_its_successor():
    cache = Cache()
    cache.store(CONFIG_MAP, make(7, uid="new"))
    assert not cache.remove(CONFIG_MAP, make(6, uid="old"))
    assert held(cache)["metadata"]["uid"] == "new"


def test_removing_what_was_not_held_is_not_news():
    assert not Cache().remove(CONFIG_MAP, make(1))


def test_nothing_is_kept_that_nobody_reads():
    cache = Cache()
    cache.store(CONFIG_MAP, make(1))
    cache.store(POD, make(1, spec={"containers": []}, status={"phase": "Running"}))
    assert "managedFields" not in held(cache)["metadata"]
    assert "spec" not in held(cache, POD)
    assert held(cache, POD)["status"] == {"phase": "Running"}


def test_stored_objects_are_not_the_caller_s():
    cache = Cache()
    obj = make(1)
    cache.store(CONFIG_MAP, obj)
    assert "managedFields" in obj["metadata"]


def test_children_are_found_by_their_backend_and_lost_with_their_owner():
    cache = Cache()
    cache.store(SERVICE, make(1))
    cache.store(SERVICE, make(2, name="y", owner="other"))
    assert [obj["metadata"]["name"] for obj in cache.of_backend(Key("team", "smol"), SERVICE)] == ["x"]
    assert cache.of_backend(Key("team", "smol"), CONFIG_MAP) == []
    orphan = make(3)
    orphan["metadata"]["ownerReferences"] = []
    cache.store(SERVICE, orphan)
    assert cache.of_backend(Key("team", "smol"), SERVICE) == []


FOREIGN = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "smol", "uid": "o", "controller": True}


@pytest.mark.parametrize(
    ("kind", "metadata", "expected"),
    [
        (LLM_BACKEND, {}, Key("team", "x")),
        (POD, {"labels": {"serving.penstock.dev/backend": "smol"}}, Key("team", "smol")),
        (POD, {"labels": {}}, None),
        (SERVICE, {}, None),
        (SERVICE, {"ownerReferences": [FOREIGN]}, None),
    ],
    ids=["a backend is its own", "a pod by label", "a pod without label", "no owner", "owner of another kind"],
)
def test_the_backend_of_an_object(kind, metadata, expected):
    assert backend_of(kind, {"metadata": {"name": "x", "namespace": "team", **metadata}}) == expected


def test_backends_of_many_objects_count_once():
    assert keys_of(SERVICE, [make(1), make(2, name="y")]) == {Key("team", "smol")}


def test_only_so_many_deletions_are_remembered(monkeypatch):
    monkeypatch.setattr("penstock.reconcile.cache.MARKS", 3)
    cache = Cache()
    for number in range(5):
        cache.remove(CONFIG_MAP, make(10, name=f"n{number}"))
    assert cache.store(CONFIG_MAP, make(1, name="n0"))
    assert not cache.store(CONFIG_MAP, make(1, name="n4"))
