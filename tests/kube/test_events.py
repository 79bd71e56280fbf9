"""Events are posted behind the caller's back, aggregated, bounded, and never a reason to fail; in virtual time."""

import asyncio

import pytest

from penstock.kube import events
from penstock.kube.errors import Forbidden, NotFound, Unavailable
from penstock.kube.events import Recorder

pytestmark = pytest.mark.looptime

BACKEND = {
    "apiVersion": "serving.penstock.dev/v1alpha1",
    "kind": "LLMBackend",
    "metadata": {"name": "smol", "namespace": "team", "uid": "u"},
}


class Api:
    """Takes Events.

    Attributes:
        created: The Events.
        patches: Key name, patch and uid of every patch.
        failures: Errors to raise, in order.
    """

    def __init__(self):
        self.created, self.patches, self.failures = [], [], []

    async def create(self, obj):
        self._fail()
        self.created.append(obj)
        return {**obj, "metadata": {**obj["metadata"], "uid": f"event-{len(self.created)}"}}

    async def patch(self, kind, key, patch, *, uid):
        self._fail()
        self.patches.append((key.name, patch["count"], uid))
        return {}

    def _fail(self):
        if self.failures:
            raise self.failures.pop(0)


@pytest.fixture
def api():
    return Api()


@pytest.fixture
def results():
    return []


@pytest.fixture
def recorder(api, results):
    return Recorder(api, instance="pod_1", observe=results.append)


async def post(recorder, *sayings, seconds=60):
    for reason, message in sayings:
        recorder.record(BACKEND, reason=reason, message=message, warning=reason != "AllReplicasReady")
    task = asyncio.create_task(recorder.run())
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_event_says_what_happened_to_whom(api, recorder, results):
    await post(recorder, ("AllReplicasReady", "all 2 replicas"))
    (event,) = api.created
    assert event["involvedObject"]["uid"] == "u"
    assert event["metadata"]["namespace"] == "team"
    assert (event["type"], event["reason"], event["message"]) == ("Normal", "AllReplicasReady", "all 2 replicas")
    assert event["count"] == 1
    assert results == ["ok"]


async def test_the_same_thing_said_again_is_counted_and_another_is_not(api, recorder):
    await post(recorder, ("QuotaExceeded", "a"), ("QuotaExceeded", "a"), ("QuotaExceeded", "b"), ("QuotaExceeded", "a"))
    assert [event["message"] for event in api.created] == ["a", "b"]
    name = api.created[0]["metadata"]["name"]
    assert api.patches == [(name, 2, "event-1"), (name, 3, "event-1")]


async def test_an_event_that_has_expired_is_made_anew(api, recorder):
    await post(recorder, ("QuotaExceeded", "a"))
    api.failures = [NotFound("patch", status=404, reason="", server_message="gone")]
    await post(recorder, ("QuotaExceeded", "a"), ("QuotaExceeded", "a"))
    first, second = (event["metadata"]["name"] for event in api.created)
    assert api.patches == [(second, 2, "event-2")]
    assert first


@pytest.mark.parametrize(
    "error",
    [Unavailable("down"), Forbidden("create", status=403, reason="", server_message="no")],
    ids=["outage", "no right"],
)
async def test_a_failure_is_counted_and_the_next_one_is_posted(api, recorder, results, error):
    api.failures = [error]
    await post(recorder, ("QuotaExceeded", "a"), ("QuotaExceeded", "b"))
    assert results == [type(error).__name__, "ok"]
    assert [event["message"] for event in api.created] == ["b"]


async def test_events_follow_each_other_at_a_bounded_rate(api, recorder):
    await post(recorder, *(("QuotaExceeded", str(number)) for number in range(100)), seconds=1)
    assert len(api.created) == round(1 / events.INTERVAL_SECONDS)


async def test_what_does_not_fit_into_the_queue_is_dropped_and_counted(recorder, results):
    for number in range(events.QUEUE + 3):
        recorder.record(BACKEND, reason="QuotaExceeded", message=str(number), warning=True)
    assert results == ["dropped"] * 3


async def test_a_message_is_cut_to_what_the_api_server_takes(api, recorder):
    await post(recorder, ("QuotaExceeded", "x" * 5000))
    assert len(api.created[0]["message"]) == events.LONGEST_MESSAGE
