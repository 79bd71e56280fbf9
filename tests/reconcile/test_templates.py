"""Which template pods get, over spec edits, upgrades of Penstock and losses, in a cluster in memory."""

import asyncio
import copy
import dataclasses
import logging

import hypothesis
import pytest
from hypothesis import strategies as st

from penstock.kube import errors
from penstock.kube.kinds import CONFIG_MAP, CONTROLLER_REVISION, DEPLOYMENT, LLM_BACKEND
from penstock.reconcile.cache import Cache
from penstock.reconcile.outcome import Failed, RequeueAfter
from penstock.reconcile.reconciler import Reconciler
from penstock.resources.objects import Key
from penstock.rollout.revisions import KEPT

NAMES = ("a", "b", "c")
REVISION = "serving.penstock.dev/revision"
MADE_FROM = "serving.penstock.dev/made-from"


class Fleet:
    """A cluster and the operator that serves it; `upgrade` replaces the operator by one of another release."""

    def __init__(self, cluster, settings, *, maximum=1):
        self.cluster, self.settings, self.maximum = cluster, settings, maximum
        self.restart()

    def upgrade(self, **settings):
        self.settings = dataclasses.replace(self.settings, **settings)
        self.restart()

    def restart(self):
        self.cache = Cache()
        self.reconciler = Reconciler(
            self.cluster, self.cache, self.settings, max_concurrent_rollouts=self.maximum, settle_seconds=0
        )

    def hear(self):
        for (kind, _key), obj in self.cluster.objects.items():
            self.cache.store(kind, copy.deepcopy(obj))
        for kind in (LLM_BACKEND, CONTROLLER_REVISION, DEPLOYMENT):
            for key in self.cache.all(kind):
                if (kind, key) not in self.cluster.objects:
                    self.cache.drop(kind, key)

    async def step(self, name="a"):
        """Make one pass over a backend and return the writes that changed a child, or failed to."""
        self.hear()
        self.cluster.calls.clear()
        before = self.versions()
        self.outcome = await self.reconciler.reconcile(Key("team", name))
        self.hear()
        after = self.versions()
        return [
            (verb, kind, child)
            for verb, kind, child in self.cluster.writes
            if verb != "patch_status" and before.get((kind, child)) != after.get((kind, child))
        ]

    def versions(self):
        objects = self.cluster.objects.items()
        return {(kind.name, key.name): obj["metadata"]["resourceVersion"] for (kind, key), obj in objects}

    def edit(self, kind, name, change, *, generation=0):
        """Change an object as somebody else would; its generation rises by so much."""
        obj = copy.deepcopy(self.cluster.objects[kind, Key("team", name)])
        change(obj)
        obj["metadata"]["generation"] = obj["metadata"].get("generation", 1) + generation - 1
        self.cluster.put(obj)

    def edit_spec(self, name="a", **spec):
        self.edit(LLM_BACKEND, name, lambda obj: obj["spec"].update(spec), generation=1)

    def complete(self, name="a"):
        """Let the Deployment controller and the kubelets do all they have to do."""
        generation = self.deployment(name)["metadata"]["generation"]
        numbers = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
        conditions = [{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}]
        status = {"observedGeneration": generation, "conditions": conditions, **numbers}
        self.edit(DEPLOYMENT, name, lambda obj: obj.update(status=status))

    def deployment(self, name="a"):
        return self.cluster.objects[DEPLOYMENT, Key("team", name)]

    def template(self, name="a"):
        return copy.deepcopy(self.deployment(name)["spec"]["template"])

    def limiter_image(self, name="a"):
        return self.template(name)["spec"]["initContainers"][-1]["image"]

    def revision(self, name="a"):
        return self.deployment(name)["metadata"]["annotations"][REVISION]

    def revisions(self, name="a"):
        found = [obj for (kind, _key), obj in self.cluster.objects.items() if kind == CONTROLLER_REVISION]
        mine = [obj for obj in found if obj["metadata"]["ownerReferences"][0]["name"] == name]
        return sorted(mine, key=lambda obj: obj["revision"])


@pytest.fixture
def fleet(cluster, settings, make_backend):
    made = Fleet(cluster, settings)
    for name in NAMES:
        cluster.put(make_backend(name))
    return made


@pytest.fixture
async def serving(fleet):
    """Three backends that serve, all with the template of the first release."""
    for name in NAMES:
        await fleet.step(name)
        fleet.complete(name)
        await fleet.step(name)
    return fleet


ROLLING = {"upgradePolicy": "Rolling"}
SLOTS = {"engine": {"type": "LlamaCpp", "image": "llama.cpp:server-b11434", "maxConcurrency": 8}}
PLAIN = {"engine": {"type": "LlamaCpp", "image": "llama.cpp:server-b11434"}}


async def test_the_history_is_written_before_the_deployment_that_names_it(fleet):
    writes = [(kind, name) for _verb, kind, name in await fleet.step()]
    (stored,) = fleet.revisions()
    name = stored["metadata"]["name"]
    assert writes.index(("ControllerRevision", name)) < writes.index(("Deployment", "a"))
    assert fleet.revision() == name
    made_from = fleet.deployment()["metadata"]["annotations"][MADE_FROM]
    assert made_from == f"{stored['data']['podSpec']}.{stored['data']['renderer']}"
    assert stored["data"]["template"] == fleet.template()
    assert stored["revision"] == 1


async def test_the_pods_say_nothing_of_revisions(fleet):
    await fleet.step()
    assert REVISION not in str(fleet.template())


async def test_an_upgrade_of_penstock_writes_nothing(serving):
    before = copy.deepcopy(serving.cluster.objects)
    serving.upgrade(limiter_image="penstock:2")
    for name in NAMES:
        await serving.step(name)
    assert serving.cluster.objects == before


async def test_policy_is_rendered_by_the_new_release_all_the_same(serving):
    template = serving.template()
    serving.upgrade(limiter_image="penstock:2")
    serving.edit_spec(limiter={"logLevel": "Debug"})
    assert await serving.step() == [("apply", "ConfigMap", "a-limiter")]
    assert "Debug" in serving.cluster.objects[CONFIG_MAP, Key("team", "a-limiter")]["data"]["policy.json"]
    assert serving.template() == template


async def test_replicas_change_without_a_new_template(serving):
    serving.upgrade(limiter_image="penstock:2")
    serving.edit_spec(replicas=3)
    writes = await serving.step()
    assert ("apply", "Deployment", "a") in writes
    assert "ControllerRevision" not in [kind for _verb, kind, _name in writes]
    assert serving.limiter_image() == "penstock:1"


async def test_a_change_of_the_spec_takes_the_new_release_along(serving):
    serving.upgrade(limiter_image="penstock:2")
    serving.edit_spec(**SLOTS)
    await serving.step()
    assert serving.limiter_image() == "penstock:2"
    assert [obj["revision"] for obj in serving.revisions()] == [1, 2]
    assert serving.limiter_image("b") == "penstock:1"


async def test_a_spec_that_goes_back_gets_its_former_template_back(serving):
    before, name = serving.template(), serving.revision()
    serving.upgrade(limiter_image="penstock:2")
    serving.edit_spec(**SLOTS)
    await serving.step()
    serving.edit_spec(**PLAIN)
    await serving.step()
    assert serving.template() == before
    assert serving.revision() == name
    assert [obj["metadata"]["name"] for obj in serving.revisions()][-1] == name


@pytest.mark.parametrize("policy", ["OnSpecChange", "Rolling"])
async def test_another_drain_key_replaces_no_pod(serving, policy):
    serving.edit_spec(upgradePolicy=policy)
    await serving.step()
    before = serving.template()
    serving.upgrade(drain_key=b"n" * 32)
    await serving.step()
    assert serving.template() == before


def token_and_hash(template):
    hook = template["spec"]["containers"][0]["lifecycle"]["preStop"]["httpGet"]["httpHeaders"][0]["value"]
    env = {entry["name"]: entry.get("value") for entry in template["spec"]["initContainers"][-1]["env"]}
    return hook, env["PENSTOCK_DRAIN_TOKEN_SHA256"]


async def test_token_and_expected_hash_always_come_from_the_same_key(serving):
    before = token_and_hash(serving.template())
    serving.upgrade(drain_key=b"n" * 32, limiter_image="penstock:2")
    await serving.step()
    assert token_and_hash(serving.template()) == before
    serving.edit_spec(**SLOTS)
    await serving.step()
    after = token_and_hash(serving.template())
    assert after[0] != before[0]
    assert after[1] != before[1]


async def test_history_does_not_grow_without_end(serving):
    first = serving.revision()
    for slots in range(1, KEPT + 4):
        engine = {**SLOTS["engine"], "maxConcurrency": slots}
        serving.edit_spec(engine=engine)
        await serving.step()
        serving.complete()
    assert len(serving.revisions()) == KEPT
    assert serving.revision() == serving.revisions()[-1]["metadata"]["name"]
    assert first not in [obj["metadata"]["name"] for obj in serving.revisions()]


async def test_the_last_good_revision_outlives_its_turn(serving):
    good = serving.revision()
    for slots in range(1, KEPT + 4):
        serving.edit_spec(engine={**SLOTS["engine"], "maxConcurrency": slots})
        serving.edit(LLM_BACKEND, "a", lambda obj: obj["status"]["rollout"].update(lastGoodRevision=good))
        await serving.step()
    assert good in [obj["metadata"]["name"] for obj in serving.revisions()]


async def test_what_was_written_before_a_failure_is_used_after_it(serving):
    serving.edit_spec(**SLOTS)
    serving.cluster.failures["apply", "Deployment"] = [errors.Unavailable("down")]
    await serving.step()
    assert isinstance(serving.outcome, Failed)
    assert len(serving.revisions()) == 2
    serving.upgrade(limiter_image="penstock:2")
    await serving.step()
    assert serving.limiter_image() == "penstock:1"
    assert serving.revision() == serving.revisions()[-1]["metadata"]["name"]


class TestLostHistory:
    """A ControllerRevision that is gone, hidden or wrong replaces no pod, whatever release runs."""

    @pytest.fixture
    async def upgraded(self, serving):
        serving.upgrade(limiter_image="penstock:2")
        return serving

    async def test_deleted(self, upgraded):
        before, name = upgraded.template(), upgraded.revision()
        upgraded.cluster.remove(CONTROLLER_REVISION, Key("team", name))
        assert await upgraded.step() == [("apply", "ControllerRevision", name)]
        assert upgraded.template() == before
        assert upgraded.revisions()[0]["data"]["template"] == before

    async def test_deleted_together_with_a_change_of_the_spec(self, upgraded):
        upgraded.cluster.remove(CONTROLLER_REVISION, Key("team", upgraded.revision()))
        upgraded.edit_spec(**SLOTS)
        await upgraded.step()
        assert upgraded.limiter_image() == "penstock:2"

    async def test_without_its_labels_it_is_read_by_its_name(self, upgraded):
        name = upgraded.revision()
        upgraded.edit(CONTROLLER_REVISION, name, lambda obj: obj["metadata"].update(labels={}))
        before = upgraded.template()
        hidden = upgraded.cluster.objects[CONTROLLER_REVISION, Key("team", name)]

        # The watch selects by label and tells of the loss as of a deletion.
        upgraded.hear()
        upgraded.cache.drop(CONTROLLER_REVISION, Key("team", name))
        upgraded.hear = lambda: None
        assert await upgraded.step() == [("apply", "ControllerRevision", name)]
        found = upgraded.cluster.objects[CONTROLLER_REVISION, Key("team", name)]
        assert found["metadata"]["uid"] == hidden["metadata"]["uid"]
        assert found["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "penstock"
        assert upgraded.template() == before

    async def test_with_other_data_it_is_made_anew(self, upgraded, caplog):
        name, before = upgraded.revision(), upgraded.template()
        upgraded.edit(CONTROLLER_REVISION, name, lambda obj: obj.update(data={"podSpec": "x"}))
        old = upgraded.cluster.objects[CONTROLLER_REVISION, Key("team", name)]["metadata"]["uid"]
        assert await upgraded.step() == [
            ("delete", "ControllerRevision", name),
            ("apply", "ControllerRevision", name),
        ]
        assert upgraded.template() == before
        assert upgraded.revisions()[0]["metadata"]["uid"] != old
        assert f"ControllerRevision {name}: it holds no pod template" in caplog.text

    async def test_the_deployment_has_lost_its_annotation(self, upgraded):
        before = upgraded.template()
        upgraded.edit(DEPLOYMENT, "a", lambda obj: obj["metadata"].pop("annotations"))
        assert await upgraded.step() == [("apply", "Deployment", "a")]
        assert upgraded.template() == before

    async def test_a_damaged_one_of_no_use_is_removed(self, upgraded):
        stray = copy.deepcopy(upgraded.revisions()[0])
        stray["metadata"] |= {"name": "a-0000000000", "uid": "stray"}
        upgraded.cluster.put({**stray, "data": None})
        assert await upgraded.step() == [("delete", "ControllerRevision", "a-0000000000")]


class TestAdoption:
    """The first release that keeps templates finds Deployments without a history."""

    @pytest.fixture
    async def adopting(self, serving):
        for name in NAMES:
            serving.cluster.remove(CONTROLLER_REVISION, Key("team", serving.revision(name)))
            serving.edit(DEPLOYMENT, name, lambda obj: obj["metadata"].pop("annotations"))
        serving.upgrade(limiter_image="penstock:2")
        return serving

    async def test_what_serves_the_present_spec_becomes_the_first_revision(self, adopting):
        before = adopting.template()
        writes = [kind for _verb, kind, _name in await adopting.step()]
        assert writes == ["ControllerRevision", "Deployment"]
        assert adopting.template() == before
        assert adopting.revisions()[0]["data"]["template"] == before

    async def test_a_spec_that_changed_while_no_operator_ran_takes_effect(self, adopting):
        adopting.edit_spec(**SLOTS)
        await adopting.step()
        assert adopting.limiter_image() == "penstock:2"

    async def test_what_does_not_serve_is_rendered_anew(self, adopting):
        adopting.edit(LLM_BACKEND, "a", lambda obj: obj["status"]["conditions"][0].update(status="False"))
        await adopting.step()
        assert adopting.limiter_image() == "penstock:2"


class TestRolling:
    @pytest.fixture
    async def rolling(self, serving):
        for name in NAMES:
            serving.edit_spec(name, **ROLLING)
            await serving.step(name)
        serving.upgrade(limiter_image="penstock:2")
        return serving

    def images(self, fleet):
        return [fleet.limiter_image(name)[-1] for name in NAMES]

    async def test_one_backend_at_a_time_and_each_only_when_the_last_is_complete(self, rolling):
        for name in NAMES:
            await rolling.step(name)
        assert self.images(rolling) == ["2", "1", "1"]
        await rolling.step("b")
        assert isinstance(rolling.outcome, RequeueAfter)
        assert self.images(rolling) == ["2", "1", "1"]
        rolling.complete("a")
        await rolling.step("c")
        await rolling.step("b")
        assert self.images(rolling) == ["2", "1", "2"]
        rolling.complete("c")
        await rolling.step("b")
        assert self.images(rolling) == ["2", "2", "2"]

    async def test_passes_at_the_same_time_do_not_exceed_the_limit(self, rolling):
        rolling.hear()
        await asyncio.gather(*(rolling.reconciler.reconcile(Key("team", name)) for name in NAMES))
        assert sorted(self.images(rolling)) == ["1", "1", "2"]

    async def test_a_restarted_operator_counts_what_is_under_way(self, rolling):
        await rolling.step("c")
        rolling.restart()
        await rolling.step("a")
        assert self.images(rolling) == ["1", "1", "2"]

    async def test_one_in_trouble_stops_the_others_and_says_so(self, rolling, caplog):
        caplog.set_level(logging.INFO)
        rolling.reconciler = Reconciler(
            rolling.cluster, rolling.cache, rolling.settings, max_concurrent_rollouts=3, settle_seconds=0
        )
        await rolling.step("a")
        rolling.cluster.put(crashing_pod("a"))
        rolling.hear()
        await rolling.step("b")
        assert self.images(rolling) == ["2", "1", "1"]
        assert "team/b: waits" in caplog.text
        assert "the new replicas of team/a are in trouble" in caplog.text

    async def test_a_broken_one_that_is_deleted_stops_nobody(self, rolling):
        await rolling.step("a")
        rolling.cluster.put(crashing_pod("a"))
        await rolling.step("b")
        for kind in (LLM_BACKEND, DEPLOYMENT):
            rolling.cluster.remove(kind, Key("team", "a"))
        await rolling.step("b")
        assert rolling.limiter_image("b") == "penstock:2"

    async def test_a_change_of_the_spec_does_not_wait(self, rolling):
        await rolling.step("a")
        rolling.edit_spec("b", **SLOTS)
        await rolling.step("b")
        assert self.images(rolling) == ["2", "2", "1"]

    async def test_a_permission_that_came_to_nothing_is_free_again(self, rolling):
        rolling.cluster.failures["apply", "Deployment"] = [errors.Unavailable("down")]
        await rolling.step("a")
        await rolling.step("b")
        assert self.images(rolling) == ["1", "2", "1"]

    async def test_backends_with_the_other_policy_are_left_alone(self, rolling):
        rolling.edit_spec("a", upgradePolicy="OnSpecChange")
        for name in NAMES:
            await rolling.step(name)
        assert self.images(rolling) == ["1", "2", "1"]

    async def test_the_next_release_may_come_before_the_last_is_everywhere(self, rolling):
        await rolling.step("a")
        rolling.complete("a")
        rolling.upgrade(limiter_image="penstock:3")
        for name in NAMES:
            await rolling.step(name)
            rolling.complete(name)
        assert self.images(rolling) == ["3", "3", "3"]

    async def test_a_release_that_is_taken_back_brings_the_former_revision_back(self, rolling):
        name = rolling.revision()
        await rolling.step("a")
        rolling.complete("a")
        rolling.upgrade(limiter_image="penstock:1")
        await rolling.step("a")
        assert rolling.revision() == name


def crashing_pod(name):
    ended = {"exitCode": 1, "reason": "Error", "message": "no"}
    status = {"name": "engine", "ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-pod",
            "namespace": "team",
            "labels": {"serving.penstock.dev/backend": name, "pod-template-hash": "x"},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {},
        "status": {"phase": "Running", "containerStatuses": [{**status, "lastState": {"terminated": ended}}]},
    }


async def test_a_paused_backend_keeps_what_it_has(serving):
    serving.edit_spec(paused=True, **SLOTS)
    assert await serving.step() == []
    serving.edit_spec(paused=False)
    assert ("apply", "Deployment", "a") in await serving.step()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("spec"), st.integers(1, 3)),
        st.tuples(st.just("policy"), st.sampled_from(["OnSpecChange", "Rolling"])),
        st.tuples(st.just("release"), st.integers(1, 3)),
        st.tuples(st.just("replicas"), st.integers(0, 3)),
        st.tuples(st.just("key"), st.integers(1, 3)),
        st.tuples(st.just("lose"), st.integers(0, 5)),
        st.tuples(st.just("fail"), st.sampled_from(["ControllerRevision", "Deployment"])),
    ),
    max_size=14,
)


# Each step is a whole pass, so shrinking a failure takes minutes; what is printed is short enough as it is.
WITHOUT_SHRINKING = (hypothesis.Phase.explicit, hypothesis.Phase.reuse, hypothesis.Phase.generate)


def test_pods_are_replaced_when_the_spec_changes_or_an_upgrade_is_wanted_and_never_else(
    cluster, settings, make_backend
):
    async def live(steps):
        fleet = Fleet(type(cluster)(), settings)
        fleet.cluster.put(make_backend("a", **SLOTS))
        await fleet.step()
        fleet.complete()
        applied, release = 8, "penstock:1"
        slots, wanted, policy = 8, "penstock:1", "OnSpecChange"
        for step, value in steps:
            before = fleet.template()
            if step == "spec":
                slots = value
                fleet.edit_spec(engine={**SLOTS["engine"], "maxConcurrency": value})
            elif step == "policy":
                policy = value
                fleet.edit_spec(upgradePolicy=value)
            elif step == "release":
                wanted = f"penstock:{value}"
                fleet.upgrade(limiter_image=wanted)
            elif step == "replicas":
                fleet.edit_spec(replicas=value)
            elif step == "key":
                fleet.upgrade(drain_key=bytes([value]) * 32)
            elif step == "lose":
                for obj in fleet.revisions()[-value:]:
                    fleet.cluster.remove(CONTROLLER_REVISION, Key("team", obj["metadata"]["name"]))
            else:
                fleet.cluster.failures["apply", value] = [errors.Unavailable("down")]
            await fleet.step()
            fleet.cluster.failures.clear()
            await fleet.step()
            fleet.complete()
            changed = slots != applied
            rolled = fleet.template() != before
            assert rolled == (changed or (policy == "Rolling" and release != wanted)), (step, value)
            if rolled:
                applied, release = slots, fleet.limiter_image()
            assert fleet.revision() in [obj["metadata"]["name"] for obj in fleet.revisions()]
            assert [obj["data"]["template"] for obj in fleet.revisions()][-1] == fleet.template()

    @hypothesis.given(STEPS)
    @hypothesis.settings(deadline=None, max_examples=25, phases=WITHOUT_SHRINKING)
    def all_lives(steps):
        asyncio.run(live(steps))

    all_lives()
