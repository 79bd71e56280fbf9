"""Backends and pods as the slow loop sees them, and when it is told."""

import pytest

from penstock.api.backend import LLMBackend
from penstock.fleet.signals import Replica
from penstock.kube.kinds import LLM_BACKEND, POD
from penstock.reconcile.cache import Cache
from penstock.reconcile.fleettarget import fleet_target, replicas_of
from penstock.reconcile.reconciler import Reconciler
from penstock.resources.labels import selector
from penstock.resources.objects import Key

KEY = Key("team", "smol")


def pod(name="smol-1", *, ready=True, address="10.0.0.1", **metadata):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "uid": f"uid of {name}", **metadata},
        "status": {
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            **({"podIP": address} if address else {}),
        },
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pod(), Replica("smol-1", "uid of smol-1", "10.0.0.1", ready=True)),
        (pod(ready=False), Replica("smol-1", "uid of smol-1", "10.0.0.1", ready=False)),
        (pod(address=""), Replica("smol-1", "uid of smol-1", "", ready=True)),
        (pod(deletionTimestamp="now"), Replica("smol-1", "uid of smol-1", "10.0.0.1", ready=False)),
        ({"metadata": {"name": "smol-1"}}, Replica("smol-1", "", "", ready=False)),
    ],
    ids=["ready", "not ready", "no address", "going", "just made"],
)
def test_a_pod(given, expected):
    assert replicas_of([given]) == (expected,)


def test_replicas_have_an_order_of_their_own():
    assert replicas_of([pod("b"), pod("a")]) == replicas_of([pod("a"), pod("b")])


@pytest.mark.parametrize(("spec", "policy"), [({}, "text"), ({"paused": True}, None)], ids=["running", "paused"])
def test_a_paused_backend_keeps_the_policy_that_its_replicas_have(make_backend, spec, policy):
    raw = make_backend(**spec)
    raw["metadata"] |= {"uid": "u", "generation": 1}
    target = fleet_target(LLMBackend.parse(raw), [pod()], policy="text")
    assert (target.uid, target.policy, len(target.ready)) == ("u", policy, 1)


class Fleet:
    """Remembers what it is told."""

    def __init__(self):
        self.told = []
        self.seen = None

    def observe(self, _key, target):
        self.told.append(("observe", target))

    def observe_replicas(self, _key, replicas):
        self.told.append(("replicas", replicas))

    def forget(self, _key):
        self.told.append(("forget", None))

    def view(self, _key):
        return self.seen


class Scene:
    def __init__(self, cluster, settings):
        self.cluster, self.cache, self.fleet = cluster, Cache(), Fleet()
        self.reconciler = Reconciler(cluster, self.cache, settings, settle_seconds=0, fleet=self.fleet)

    async def step(self, *objects):
        """Let these be there, make a pass, and return what the slow loop was told."""
        for obj in objects:
            kind = POD if obj["kind"] == "Pod" else LLM_BACKEND
            self.cache.store(kind, self.cluster.put(obj))
        self.fleet.told.clear()
        await self.reconciler.reconcile(KEY)
        return self.fleet.told


@pytest.fixture
def scene(cluster, settings):
    return Scene(cluster, settings)


def of_backend(raw, one):
    labels = selector(LLMBackend.parse({**raw, "metadata": {**raw["metadata"], "uid": "u", "generation": 1}}))
    one["metadata"]["labels"] = dict(labels)
    return one


async def test_each_pass_tells_of_the_spec_and_the_pods(scene, make_backend):
    raw = make_backend()
    [(what, target)] = await scene.step(raw, of_backend(raw, pod()))
    assert what == "observe"
    assert [one.address for one in target.ready] == ["10.0.0.1"]
    assert '"admission"' in target.policy


async def test_an_invalid_spec_leaves_what_was_and_tells_of_the_pods(scene, make_backend):
    raw = make_backend(engine={"type": "Unheard"})
    [(what, replicas)] = await scene.step(raw, of_backend(make_backend(), pod()))
    assert (what, [one.name for one in replicas]) == ("replicas", ["smol-1"])


async def test_a_backend_that_is_gone_is_forgotten(scene):
    assert await scene.step() == [("forget", None)]
