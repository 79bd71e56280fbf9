"""Claims and Events are read only for a backend in trouble, at a bounded rate, and done without where denied."""

import pytest

from penstock.api.backend import LLMBackend
from penstock.kube import errors
from penstock.kube.kinds import EVENT, PERSISTENT_VOLUME_CLAIM
from penstock.reconcile.observe import (
    FIRST_WAIT_SECONDS,
    LONGEST_WAIT_SECONDS,
    PODS_AT_ONCE,
    STUCK_SECONDS,
    Observer,
)
from penstock.reconcile.rights import DENIED_SECONDS, OptionalReads
from penstock.resources.objects import Key

KEY = Key("team", "smol")
CLAIM = {"persistentVolumeClaim": {"claimName": "models", "path": "/m.gguf"}}


class Cluster:
    """Answers reads and remembers them."""

    def __init__(self):
        self.reads = []
        self.claim = {"status": {"phase": "Bound"}}
        self.failure = None

    async def get(self, kind, key):
        self.reads.append((kind, key))
        if self.failure is not None:
            raise self.failure
        if self.claim is None:
            raise errors.NotFound("get", status=404, reason="NotFound", server_message="")
        return self.claim

    async def list(self, kind, *, namespace=None, labels=None, fields=None):
        self.reads.append((kind, fields["involvedObject.uid"]))
        if self.failure is not None:
            raise self.failure
        return [{"reason": "FailedMount", "message": fields["involvedObject.uid"]}]


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
def observer(cluster, clock):
    return Observer(cluster, OptionalReads(now=lambda: clock[0]), now=lambda: clock[0])


@pytest.fixture
def parse(make_backend):
    def parse(**spec):
        return LLMBackend.parse(make_backend(**spec))

    return parse


def pod(name="a", phase="Pending"):
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"phase": phase, "conditions": [{"type": "PodScheduled", "status": "True"}]},
    }


async def test_with_nothing_to_ask_nothing_is_read(observer, cluster, parse):
    findings = await observer.look(KEY, parse(), [pod(phase="Running")])
    assert (findings.look_again_seconds, cluster.reads) == (None, [])


@pytest.mark.parametrize("claim", [{"status": {}}, None], ids=["there", "missing"])
async def test_a_claim_that_the_spec_names_is_read(observer, cluster, parse, claim):
    cluster.claim = claim
    findings = await observer.look(KEY, parse(model={"name": "m", "source": CLAIM}), [])
    assert findings.claims == {"models": claim}
    assert cluster.reads == [(PERSISTENT_VOLUME_CLAIM, Key("team", "models"))]
    assert findings.look_again_seconds == FIRST_WAIT_SECONDS


async def test_events_are_read_of_a_pod_only_after_it_had_time_to_come_up(observer, cluster, clock, parse):
    findings = await observer.look(KEY, parse(), [pod()])
    assert (findings.events, cluster.reads) == ((), [])
    assert findings.look_again_seconds == STUCK_SECONDS
    clock[0] += STUCK_SECONDS
    findings = await observer.look(KEY, parse(), [pod()])
    assert [event["message"] for event in findings.events] == ["uid-a"]
    assert cluster.reads == [(EVENT, "uid-a")]


async def test_a_pod_that_comes_up_is_never_asked_about(observer, cluster, clock, parse):
    await observer.look(KEY, parse(), [pod()])
    clock[0] += STUCK_SECONDS
    findings = await observer.look(KEY, parse(), [pod(phase="Running")])
    assert (findings.events, findings.look_again_seconds, cluster.reads) == ((), None, [])


async def test_of_many_stuck_pods_a_few_are_asked_about(observer, cluster, clock, parse):
    pods = [pod(name) for name in "abcdef"]
    await observer.look(KEY, parse(), pods)
    clock[0] += STUCK_SECONDS
    await observer.look(KEY, parse(), pods)
    assert len(cluster.reads) == PODS_AT_ONCE


async def test_however_often_it_is_looked_at_reads_are_rare_and_become_rarer(observer, cluster, clock, parse):
    backend = parse(model={"name": "m", "source": CLAIM})
    for _ in range(1000):
        findings = await observer.look(KEY, backend, [])
        assert findings.claims == {"models": cluster.claim}
        assert 0 < findings.look_again_seconds <= LONGEST_WAIT_SECONDS
        clock[0] += 0.1
    assert len(cluster.reads) <= 3 + 100 / LONGEST_WAIT_SECONDS + 1


async def test_at_the_time_it_names_it_reads_again(observer, cluster, clock, parse):
    backend = parse(model={"name": "m", "source": CLAIM})
    for count in range(1, 6):
        findings = await observer.look(KEY, backend, [])
        assert len(cluster.reads) == count
        clock[0] += findings.look_again_seconds


async def test_a_new_question_is_asked_soon(observer, cluster, clock, parse):
    backend = parse(model={"name": "m", "source": CLAIM})
    for _ in range(5):
        clock[0] += (await observer.look(KEY, backend, [pod()])).look_again_seconds
    asked = len(cluster.reads)
    await observer.look(KEY, backend, [pod(), pod("b")])
    clock[0] += STUCK_SECONDS
    await observer.look(KEY, backend, [pod(), pod("b")])
    assert (EVENT, "uid-b") in cluster.reads[asked:]


async def test_forgotten_it_begins_anew(observer, cluster, parse):
    backend = parse(model={"name": "m", "source": CLAIM})
    for _ in range(2):
        await observer.look(KEY, backend, [])
        observer.forget(KEY)
    assert len(cluster.reads) == 2


async def test_what_may_not_be_read_is_named_and_not_asked_again_for_a_while(observer, cluster, clock, parse):
    cluster.failure = errors.Forbidden("list", status=403, reason="Forbidden", server_message="cannot list")
    backend = parse(model={"name": "m", "source": CLAIM})
    started = clock[0]
    await observer.look(KEY, backend, [pod()])
    while clock[0] - started < DENIED_SECONDS / 2:
        clock[0] += STUCK_SECONDS
        findings = await observer.look(KEY, backend, [pod()])
    assert findings.unreadable == ("get persistentvolumeclaims", "list events")
    assert len(cluster.reads) == 2
    cluster.failure = None
    clock[0] += DENIED_SECONDS
    findings = await observer.look(KEY, backend, [pod()])
    assert findings.unreadable == ()
    assert findings.claims == {"models": cluster.claim}


async def test_an_api_server_that_is_away_ends_the_pass(observer, cluster, parse):
    cluster.failure = errors.Unavailable("down")
    with pytest.raises(errors.Unavailable):
        await observer.look(KEY, parse(model={"name": "m", "source": CLAIM}), [])
