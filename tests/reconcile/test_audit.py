"""The comparison of the cache with the cluster finds what watches have missed."""

import pytest

from penstock.kube import errors
from penstock.kube.kinds import CONFIG_MAP, LLM_BACKEND, SERVICE
from penstock.reconcile.audit import audit
from penstock.reconcile.cache import Cache
from penstock.reconcile.queue import WorkQueue
from penstock.resources.objects import Key

KINDS = (LLM_BACKEND, CONFIG_MAP, SERVICE)
OWNER = {"apiVersion": "serving.penstock.dev/v1alpha1", "kind": "LLMBackend", "uid": "o", "controller": True}


def child(name, *, namespace="team", backend="smol", managed=True):
    metadata = {"name": name, "namespace": namespace, "ownerReferences": [OWNER | {"name": backend}]}
    if managed:
        metadata["labels"] = {"app.kubernetes.io/managed-by": "penstock"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


async def keys(queue):
    found = set()
    while queue.depth:
        key = await queue.get()
        found.add(key)
        queue.done(key)
    return found


async def run(cluster, cache, namespaces=()):
    queue = WorkQueue()
    await audit(cluster, cache, queue, namespaces=namespaces, kinds=KINDS)
    return await keys(queue)


async def test_it_fills_an_empty_cache_and_asks_for_every_backend(cluster, make_backend):
    for name in ("a", "b"):
        cluster.put(make_backend(name))
    cluster.put(child("x"))
    cache = Cache()
    assert await run(cluster, cache) == {Key("team", "a"), Key("team", "b"), Key("team", "smol")}
    assert cache.get(CONFIG_MAP, Key("team", "x"))
    assert cluster.writes == []


async def test_what_has_vanished_unheard_is_removed_and_its_backend_asked_for(cluster):
    cache = Cache()
    cache.store(CONFIG_MAP, cluster.put(child("x")))
    del cluster.objects[CONFIG_MAP, Key("team", "x")]
    assert await run(cluster, cache) == {Key("team", "smol")}
    assert cache.get(CONFIG_MAP, Key("team", "x")) is None


async def test_what_has_lost_its_label_is_removed(cluster):
    cache = Cache()
    cache.store(CONFIG_MAP, cluster.put(child("x")))
    cluster.put(child("x", managed=False))
    assert await run(cluster, cache) == {Key("team", "smol")}


async def test_what_is_new_to_the_cache_during_the_list_stays(cluster):
    cache = Cache()
    cache.store(SERVICE, cluster.put(child("x") | {"kind": "Service"}))
    list_objects = cluster.list

    async def list_while_something_happens(kind, **arguments):
        listed = await list_objects(kind, **arguments)
        if kind == SERVICE:
            cache.store(SERVICE, cluster.put(child("y") | {"kind": "Service"}))
        return listed

    cluster.list = list_while_something_happens
    await run(cluster, cache)
    assert cache.get(SERVICE, Key("team", "y"))


async def test_what_is_made_anew_during_the_list_stays(cluster):
    """The list does not name it, since it was taken when the old one had gone and the new one was not there yet."""
    cache = Cache()
    cache.store(CONFIG_MAP, cluster.put(child("x")))
    del cluster.objects[CONFIG_MAP, Key("team", "x")]
    list_objects = cluster.list

    async def list_while_something_happens(kind, **arguments):
        listed = await list_objects(kind, **arguments)
        if kind == CONFIG_MAP:
            cache.store(CONFIG_MAP, cluster.put(child("x")))
        return listed

    cluster.list = list_while_something_happens
    await run(cluster, cache)
    assert cache.get(CONFIG_MAP, Key("team", "x"))


async def test_only_the_given_namespaces_are_looked_at(cluster, make_backend):
    cluster.put(make_backend())
    other = make_backend("other")
    other["metadata"]["namespace"] = "elsewhere"
    cluster.put(other)
    cache = Cache()
    cache.store(CONFIG_MAP, cluster.put(child("x", namespace="elsewhere")))
    assert await run(cluster, cache, namespaces=("team",)) == {Key("team", "smol")}
    assert cache.get(CONFIG_MAP, Key("elsewhere", "x"))
    assert cache.get(LLM_BACKEND, Key("elsewhere", "other")) is None


async def test_an_outage_is_raised_and_removes_nothing(cluster):
    cache = Cache()
    cache.store(CONFIG_MAP, cluster.put(child("x")))
    cluster.failures["list", "ConfigMap"] = [errors.Unavailable("down")]
    with pytest.raises(errors.Unavailable):
        await run(cluster, cache)
    assert cache.get(CONFIG_MAP, Key("team", "x"))


async def test_a_namespace_that_may_not_be_read_does_not_keep_the_others_from_being_compared(
    cluster, make_backend, make_error
):
    cluster.put(make_backend("a"))
    list_all = cluster.list

    async def refuse(kind, *, namespace=None, labels=None):
        if namespace == "gone":
            raise make_error(errors.Forbidden, 403, "cannot list")
        return await list_all(kind, namespace=namespace, labels=labels)

    cluster.list = refuse
    cache, queue = Cache(), WorkQueue()
    with pytest.raises(errors.Forbidden):
        await audit(cluster, cache, queue, namespaces=("gone", "team"), kinds=KINDS)
    assert await keys(queue) == {Key("team", "a")}


async def test_what_a_list_shows_before_its_event_is_looked_at(cluster):
    """The event comes later and is taken for an echo, so this is the only time it is news."""
    cache = Cache()
    cache.store(CONFIG_MAP, cluster.put(child("x")))
    assert await run(cluster, cache) == set()
    cluster.put(child("x") | {"data": {"policy.json": "{}"}})
    assert await run(cluster, cache) == {Key("team", "smol")}


async def test_a_child_that_has_changed_hands_unheard_concerns_both(cluster):
    cache = Cache()
    cache.store(CONFIG_MAP, cluster.put(child("x")))
    cluster.put(child("x", backend="other"))
    assert await run(cluster, cache) == {Key("team", "smol"), Key("team", "other")}
