"""As soon as what refuses pods has changed they are tried again; until then nothing is written."""

import pytest

from penstock.kube import errors
from penstock.kube.kinds import DEPLOYMENT
from penstock.reconcile.cache import Cache
from penstock.reconcile.obstacles import LOOK_SECONDS, RETRY_ANNOTATION, Obstacles
from penstock.reconcile.rights import OptionalReads
from penstock.resources.objects import Key

KEY = Key("team", "smol")
QUOTA = "exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2"
LIMITS = "maximum memory usage per Container is 64Mi, but limit is 1Gi"
SECURITY = 'violates PodSecurity "restricted:latest": hostPath volumes'


class Cluster:
    """Holds the obstacles and remembers reads and writes."""

    def __init__(self):
        self.quota = {"status": {"hard": {"pods": "2", "services": "9"}, "used": {"pods": "2", "services": "1"}}}
        self.limits = [{"metadata": {"name": "l", "namespace": "team"}, "spec": {"limits": [{"max": "64Mi"}]}}]
        self.labels = {"pod-security.kubernetes.io/enforce": "restricted", "team": "a"}
        self.reads = 0
        self.patches = []
        self.failure = None

    def _read(self):
        self.reads += 1
        if self.failure is not None:
            raise self.failure

    async def get(self, kind, key):
        self._read()
        if self.quota is None:
            raise errors.NotFound("get", status=404, reason="NotFound", server_message="")
        return self.quota

    async def list(self, kind, *, namespace=None, labels=None, fields=None):
        self._read()
        return self.limits

    async def read(self, path):
        self._read()
        assert path == "/api/v1/namespaces/team"
        return {"metadata": {"labels": self.labels}}

    async def patch(self, kind, key, patch, *, uid):
        assert (kind, key, uid) == (DEPLOYMENT, KEY, "u")
        self.patches.append(patch["metadata"]["annotations"][RETRY_ANNOTATION])
        return deployment("")


def deployment(refusal):
    failure = {"type": "ReplicaFailure", "status": "True", "message": f'pods "x" is forbidden: {refusal}'}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "smol", "namespace": "team", "uid": "u", "resourceVersion": "1"},
        "status": {"conditions": [failure] if refusal else []},
    }


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
def obstacles(cluster, clock):
    return Obstacles(cluster, Cache(), OptionalReads(now=lambda: clock[0]), now=lambda: clock[0])


CHANGES = [
    pytest.param(QUOTA, lambda c: c.quota["status"]["hard"].update(pods="3"), id="quota raised"),
    pytest.param(QUOTA, lambda c: c.quota["status"]["used"].update(pods="1"), id="room in the quota"),
    pytest.param(QUOTA, lambda c: setattr(c, "quota", None), id="quota gone"),
    pytest.param(LIMITS, lambda c: c.limits[0]["spec"].update(limits=[]), id="LimitRange changed"),
    pytest.param(LIMITS, lambda c: c.limits.clear(), id="LimitRange gone"),
    pytest.param(SECURITY, lambda c: c.labels.pop("pod-security.kubernetes.io/enforce"), id="label removed"),
]


@pytest.mark.parametrize(("refusal", "remove"), CHANGES)
async def test_when_the_obstacle_changes_the_pods_are_tried_again_once(obstacles, cluster, clock, refusal, remove):
    for _ in range(3):
        assert await obstacles.look(KEY, deployment(refusal)) == LOOK_SECONDS
        clock[0] += LOOK_SECONDS
    assert cluster.patches == []
    remove(cluster)
    # At once: the answer to the patch may show somebody's edit of the Deployment, and its event tells nothing new.
    assert await obstacles.look(KEY, deployment(refusal)) == 0
    for _ in range(3):
        clock[0] += LOOK_SECONDS
        assert await obstacles.look(KEY, deployment(refusal)) == LOOK_SECONDS
    assert len(cluster.patches) == 1


UNRELATED = [
    pytest.param(QUOTA, lambda c: c.quota["status"]["used"].update(services="2"), id="another resource of the quota"),
    pytest.param(SECURITY, lambda c: c.labels.update(team="b"), id="another label of the namespace"),
]


@pytest.mark.parametrize(("refusal", "change"), UNRELATED)
async def test_other_changes_are_no_reason_to_write(obstacles, cluster, clock, refusal, change):
    await obstacles.look(KEY, deployment(refusal))
    change(cluster)
    clock[0] += LOOK_SECONDS
    await obstacles.look(KEY, deployment(refusal))
    assert cluster.patches == []


async def test_another_obstacle_than_before_is_no_change_of_it(obstacles, cluster, clock):
    await obstacles.look(KEY, deployment(QUOTA))
    await obstacles.look(KEY, deployment(LIMITS))
    assert (cluster.reads, cluster.patches) == (2, [])


async def test_however_often_it_is_looked_at_reads_keep_their_distance(obstacles, cluster, clock):
    for _ in range(100):
        left = await obstacles.look(KEY, deployment(QUOTA))
        assert 0 < left <= LOOK_SECONDS
        clock[0] += 0.1
    assert cluster.reads <= 10 / LOOK_SECONDS + 1


@pytest.mark.parametrize(
    "refusal", ["", 'admission webhook "x" denied the request'], ids=["pods are made", "refused by a webhook"]
)
async def test_without_an_obstacle_that_can_be_seen_nothing_is_read(obstacles, cluster, refusal):
    assert await obstacles.look(KEY, deployment(refusal)) is None
    assert await obstacles.look(KEY, None) is None
    assert cluster.reads == 0


async def test_where_the_obstacle_may_not_be_read_the_cluster_s_own_delays_remain(obstacles, cluster):
    cluster.failure = errors.Forbidden("get", status=403, reason="Forbidden", server_message="cannot get")
    assert await obstacles.look(KEY, deployment(QUOTA)) is None
    assert await obstacles.look(KEY, deployment(QUOTA)) is None
    assert cluster.reads == 1


async def test_a_deployment_that_has_gone_meanwhile_is_no_failure(obstacles, cluster, clock):
    async def gone(kind, key, patch, *, uid):
        raise errors.NotFound("patch", status=404, reason="NotFound", server_message="")

    cluster.patch = gone
    await obstacles.look(KEY, deployment(QUOTA))
    cluster.quota = None
    clock[0] += LOOK_SECONDS
    assert await obstacles.look(KEY, deployment(QUOTA)) == 0
