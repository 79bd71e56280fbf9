"""Events enter the cache, and the backend they concern enters the queue if they told anything new."""

import asyncio
import gc
import logging

import kopf
import pytest

from penstock.kube.kinds import CONFIG_MAP, DEPLOYMENT, LLM_BACKEND, POD
from penstock.reconcile.cache import Cache
from penstock.reconcile.queue import WorkQueue
from penstock.resources.objects import Key
from penstock.runtime import source

OWNER = {"apiVersion": "serving.penstock.dev/v1alpha1", "kind": "LLMBackend", "uid": "o", "controller": True}


def test_a_watch_ends_by_its_own_time_and_never_by_kopf_s_timer_for_silence():
    watching = source._settings([LLM_BACKEND, POD]).watching
    assert watching.server_timeout < watching.client_timeout < watching.inactivity_timeout


def child(version, *, owner="smol", **more):
    metadata = {
        "name": "x",
        "namespace": "n",
        "resourceVersion": str(version),
        "ownerReferences": [OWNER | {"name": owner}],
    }
    return {"metadata": metadata, **more}


@pytest.fixture
def told():
    """Return a function that tells of an event and returns the backends that are then waiting."""
    cache = Cache()

    async def tell(kind, event_type, obj):
        queue = WorkQueue()
        source.take(kind, event_type, obj, cache=cache, queue=queue)
        keys = set()
        while queue.depth:
            keys.add(await queue.get())
        return keys

    return tell


async def test_a_listed_object_counts_like_a_new_one(told):
    assert await told(CONFIG_MAP, None, child(1)) == {Key("n", "smol")}


async def test_an_echo_of_what_is_known_is_ignored(told):
    await told(CONFIG_MAP, "ADDED", child(1))
    assert await told(CONFIG_MAP, "MODIFIED", child(1)) == set()
    assert await told(CONFIG_MAP, "MODIFIED", child(2)) == set()
    assert await told(CONFIG_MAP, "MODIFIED", child(3, data={"a": "b"})) == {Key("n", "smol")}


def test_the_echo_of_an_own_write_calls_no_handler_and_a_deletion_always_does():
    cache = Cache()
    cache.store(CONFIG_MAP, child(5))
    is_news = source._is_news(CONFIG_MAP, cache)
    assert not is_news(event={"type": "MODIFIED", "object": child(5)})
    assert is_news(event={"type": "MODIFIED", "object": child(6)})
    assert is_news(event={"type": "ADDED", "object": {"metadata": {"name": "y", "namespace": "n"}}})
    assert is_news(event={"type": "DELETED", "object": child(5)})


async def test_a_deletion_is_told(told):
    await told(CONFIG_MAP, "ADDED", child(1))
    assert await told(CONFIG_MAP, "DELETED", child(2)) == {Key("n", "smol")}


async def test_a_child_that_changes_hands_concerns_both(told):
    await told(CONFIG_MAP, "ADDED", child(1))
    assert await told(CONFIG_MAP, "MODIFIED", child(2, owner="other")) == {Key("n", "smol"), Key("n", "other")}


async def test_an_object_that_concerns_no_backend_is_harmless(told):
    assert await told(POD, "ADDED", {"metadata": {"name": "p", "namespace": "n", "resourceVersion": "1"}}) == set()


async def test_a_backend_concerns_itself(told):
    obj = {"metadata": {"name": "x", "namespace": "n", "resourceVersion": "1"}}
    assert await told(LLM_BACKEND, "ADDED", obj) == {Key("n", "x")}


def test_kopf_is_set_to_write_nothing_and_to_select_on_the_server():
    settings = source._settings((LLM_BACKEND, CONFIG_MAP, DEPLOYMENT))
    assert settings.posting.enabled is False
    assert settings.peering.standalone is True
    selectors = dict(settings.watching.label_selectors)
    assert set(selectors.values()) == {"app.kubernetes.io/managed-by=penstock"}
    assert len(selectors) == 2
    assert isinstance(settings, kopf.OperatorSettings)


async def test_what_kopf_says_of_its_own_end_is_not_logged_and_what_it_says_later_is(caplog):
    log = logging.getLogger("kopf.some.module")

    async def request_of_kopf():
        try:
            await asyncio.Event().wait()
        finally:
            log.error("connector is closed")

    task = asyncio.create_task(request_of_kopf())
    await asyncio.sleep(0)
    await source._ended([task])
    assert task.done()
    log.error("of the next run")
    assert [record.message for record in caplog.records] == ["of the next run"]


def as_kopf(source_text):
    """Compile code as if it were kopf's."""
    names = {"asyncio": asyncio}
    exec(compile(source_text, kopf.__file__, "exec"), names)
    return names


KOPF = as_kopf("""
def callback():
    assert asyncio.current_task() is not None

async def failing():
    raise ValueError("the watch has failed")

async def deaf(times):
    for _ in range(times):
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
""")


@pytest.fixture
async def hiding():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(source._hide_debris)
    yield loop
    loop.set_exception_handler(None)


async def fail():
    raise ValueError("a defect of our own")


DEBRIS = {
    "a callback of kopf": (lambda loop: loop.call_soon(KOPF["callback"]), False),
    "a callback of ours": (lambda loop: loop.call_soon(lambda: 1 / 0), True),
    "a task of kopf": (lambda _loop: asyncio.create_task(KOPF["failing"]()), False),
    "a task of ours": (lambda _loop: asyncio.create_task(fail()), True),
}


@pytest.mark.parametrize(("start", "told"), DEBRIS.values(), ids=DEBRIS.keys())
async def test_only_what_kopf_leaves_behind_is_hidden(hiding, caplog, start, told):
    start(hiding)
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()
    assert bool(caplog.records) is told


@pytest.mark.parametrize(("times", "ends"), [(1, True), (2, True), (20, False)], ids=["once", "twice", "ever again"])
async def test_a_task_of_kopf_that_swallows_its_cancellation_is_cancelled_again(caplog, times, ends):
    """It was started by the one that is known, which has ended."""
    task = asyncio.create_task(KOPF["deaf"](times), name="a deaf watch")
    known = asyncio.create_task(asyncio.sleep(0))
    await asyncio.sleep(0)
    await source._ended([known], stop_seconds=0.05)
    assert task.done() is ends
    assert ("a deaf watch" in caplog.text) is not ends
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
