"""Passes over backends in a cluster in memory: which requests are made, in which order, and which are not."""

import copy

import pytest

from penstock.kube import errors
from penstock.kube.kinds import CHILD_KINDS, CONFIG_MAP, DEPLOYMENT, LLM_BACKEND, SERVICE, SERVICE_ACCOUNT
from penstock.reconcile.cache import Cache
from penstock.reconcile.outcome import Done, Failed, RequeueAfter
from penstock.reconcile.reconciler import Reconciler
from penstock.resources.objects import Key

KEY = Key("team", "smol")


class Scene:
    """A cluster, what the operator has heard of it, and its reconciler."""

    def __init__(self, cluster, settings):
        self.cluster, self.cache = cluster, Cache()
        self.settings = settings
        self.clock = 1000.0
        self.restart()

    def restart(self):
        """Start a new operator that has listed everything."""
        self.cache = Cache()
        self.reconciler = Reconciler(
            self.cluster, self.cache, self.settings, settle_seconds=0, clock=lambda: self.clock
        )
        self.hear()

    def hear(self):
        """Let all watches catch up."""
        for (kind, _key), obj in self.cluster.objects.items():
            self.cache.store(kind, copy.deepcopy(obj))
        for kind in (LLM_BACKEND, *CHILD_KINDS):
            for key in self.cache.all(kind):
                if (kind, key) not in self.cluster.objects:
                    self.cache.drop(kind, key)

    def put(self, obj):
        stored = self.cluster.put(obj)
        self.hear()
        return stored

    async def step(self):
        """Make one pass and return its outcome and its writes."""
        self.cluster.calls.clear()
        outcome = await self.reconciler.reconcile(KEY)
        self.hear()
        return outcome, self.cluster.writes

    def conditions(self):
        status = self.cluster.objects[LLM_BACKEND, KEY].get("status", {})
        return {entry["type"]: entry for entry in status.get("conditions", [])}

    def reason(self, condition="Ready"):
        return self.conditions().get(condition, {}).get("reason")

    def edit(self, kind, name, change):
        obj = copy.deepcopy(self.cluster.objects[kind, Key("team", name)])
        change(obj)
        return self.put(obj)


@pytest.fixture
def scene(cluster, settings):
    return Scene(cluster, settings)


@pytest.fixture
async def settled(scene, make_backend):
    """A backend with all children, none of which anybody has looked at."""
    scene.put(make_backend())
    await scene.step()
    return scene


async def test_a_new_backend_is_reported_then_built_in_order(scene, make_backend):
    scene.put(make_backend())
    outcome, writes = await scene.step()
    assert outcome == Done()
    assert writes[0] == ("patch_status", "LLMBackend", "smol")
    applied = [kind for verb, kind, _name in writes if verb == "apply"]
    assert applied[:2] == ["ServiceAccount", "ConfigMap"]
    assert applied[-2:] == ["ControllerRevision", "Deployment"]
    assert scene.conditions()["Ready"]["status"] == "Unknown"
    assert scene.conditions()["Reconciling"]["status"] == "True"


async def test_a_second_pass_makes_no_request(settled):
    assert await settled.step() == (Done(), [])
    assert settled.cluster.calls == []


async def test_a_backend_that_is_gone_or_going_costs_nothing(scene, make_backend):
    assert await scene.step() == (Done(), [])
    scene.put(make_backend())
    scene.edit(LLM_BACKEND, "smol", lambda obj: obj["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    assert await scene.step() == (Done(), [])


async def test_a_restarted_operator_changes_nothing(settled):
    before = copy.deepcopy(settled.cluster.objects)
    settled.restart()
    await settled.step()
    assert settled.cluster.objects == before
    assert ("get", "Service", "smol") not in settled.cluster.calls


async def test_only_the_changed_child_is_applied(settled):
    settled.edit(LLM_BACKEND, "smol", lambda obj: obj["spec"].update(limiter={"logLevel": "Debug"}))
    _outcome, writes = await settled.step()
    assert [write for write in writes if write[0] == "apply"] == [("apply", "ConfigMap", "smol-limiter")]


async def test_a_deleted_child_is_made_again(settled):
    settled.cluster.remove(SERVICE, KEY)
    settled.hear()
    _outcome, writes = await settled.step()
    assert writes == [("apply", "Service", "smol")]


async def test_an_edited_child_is_applied_again(settled):
    settled.edit(DEPLOYMENT, "smol", lambda obj: obj["spec"].update(replicas=9))
    _outcome, writes = await settled.step()
    assert writes == [("apply", "Deployment", "smol")]
    assert settled.cluster.objects[DEPLOYMENT, KEY]["spec"]["replicas"] == 1


async def test_an_added_selector_label_is_taken_out_again(settled):
    settled.edit(SERVICE, "smol", lambda obj: obj["spec"]["selector"].update(app="x"))
    _outcome, writes = await settled.step()
    assert writes == [("apply", "Service", "smol"), ("patch", "Service", "smol")]
    assert "app" not in settled.cluster.objects[SERVICE, KEY]["spec"]["selector"]


async def test_a_child_that_edits_have_made_impossible_to_apply_is_put_right_first(settled, make_error):
    settled.edit(SERVICE, "smol", lambda obj: obj["spec"].update(ports=[{"name": "http", "port": 81}]))
    settled.cluster.failures["apply", "Service"] = [make_error(errors.Invalid, 422, "spec.ports[1].name: Duplicate")]
    outcome, writes = await settled.step()
    assert outcome == Done()
    assert [verb for verb, _kind, _name in writes] == ["apply", "patch", "apply"]
    assert [port["port"] for port in settled.cluster.objects[SERVICE, KEY]["spec"]["ports"]] == [80]
    assert "Stalled" not in settled.conditions()


async def test_a_status_report_of_the_deployment_reaches_status_and_writes_no_child(settled):
    report = {"observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}
    settled.edit(DEPLOYMENT, "smol", lambda obj: obj.update(status=report) or obj["metadata"].update(generation=0))
    _outcome, writes = await settled.step()
    assert writes == [("patch_status", "LLMBackend", "smol")]
    assert settled.reason() == "AllReplicasReady"


async def test_a_foreign_status_edit_is_reverted(settled):
    settled.edit(LLM_BACKEND, "smol", lambda obj: obj["status"].update(url="http://elsewhere"))
    await settled.step()
    assert settled.cluster.objects[LLM_BACKEND, KEY]["status"]["url"] == "http://smol.team.svc"


FOREIGN = {
    "nobody's": [],
    "somebody's": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "x", "uid": "x", "controller": True}],
}


@pytest.mark.parametrize("owners", FOREIGN.values(), ids=FOREIGN.keys())
@pytest.mark.parametrize("heard_of", [True, False], ids=["in the cache", "not in the cache"])
async def test_a_taken_name_is_left_alone_and_told(scene, make_backend, owners, heard_of):
    foreign = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "smol-limiter", "namespace": "team", "ownerReferences": owners},
    }
    scene.cluster.put(make_backend())
    if heard_of:
        scene.put(foreign)
    else:
        scene.hear()
        scene.cluster.put(foreign)
    before = copy.deepcopy(scene.cluster.objects[CONFIG_MAP, Key("team", "smol-limiter")])
    outcome, writes = await scene.step()
    assert isinstance(outcome, RequeueAfter)
    assert ("apply", "ConfigMap", "smol-limiter") not in writes
    assert scene.cluster.objects[CONFIG_MAP, Key("team", "smol-limiter")] == before
    assert scene.reason("Stalled") == "NameTaken"
    assert "ConfigMap smol-limiter exists" in scene.conditions()["Stalled"]["message"]


async def test_children_of_an_earlier_backend_are_waited_for(settled, make_backend):
    settled.cluster.remove(LLM_BACKEND, KEY)
    settled.hear()
    settled.put(make_backend())
    outcome, writes = await settled.step()
    assert isinstance(outcome, RequeueAfter)
    assert [write for write in writes if write[0] == "apply"] == []
    assert "Stalled" not in settled.conditions()


async def test_a_name_that_another_backend_s_child_has_is_told(scene, make_backend):
    other = scene.put(make_backend("smol-replicas"))
    await scene.reconciler.reconcile(Key("team", "smol-replicas"))
    scene.hear()
    before = scene.cluster.objects[SERVICE, Key("team", "smol-replicas")]
    assert before["metadata"]["ownerReferences"][0]["uid"] == other["metadata"]["uid"]
    scene.put(make_backend())
    await scene.step()
    assert scene.reason("Stalled") == "NameTaken"
    assert "belongs to LLMBackend smol-replicas" in scene.conditions()["Stalled"]["message"]
    assert scene.cluster.objects[SERVICE, Key("team", "smol-replicas")] == before


async def test_a_child_on_its_way_out_is_waited_for(settled):
    settled.edit(SERVICE, "smol", lambda obj: obj["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    outcome, writes = await settled.step()
    assert isinstance(outcome, RequeueAfter)
    assert writes == []


async def test_a_child_that_was_replaced_unheard_is_not_overwritten(settled):
    """The cache still shows our Service; in truth somebody has put another in its place."""
    settled.edit(LLM_BACKEND, "smol", lambda obj: obj["spec"].update(service={"port": 81}))
    settled.cluster.remove(SERVICE, KEY)
    settled.cluster.put({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "smol", "namespace": "team"}})
    outcome, _writes = await settled.step()
    assert isinstance(outcome, RequeueAfter)
    assert "ownerReferences" not in settled.cluster.objects[SERVICE, KEY]["metadata"]
    await settled.step()
    assert settled.reason("Stalled") == "NameTaken"


async def test_an_own_child_that_is_no_longer_wanted_goes(settled):
    owner = settled.cluster.objects[SERVICE, KEY]["metadata"]["ownerReferences"]
    old = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "smol-of-an-older-release", "namespace": "team", "ownerReferences": owner},
    }
    settled.put(old)
    _outcome, writes = await settled.step()
    assert writes == [("delete", "ConfigMap", "smol-of-an-older-release")]


async def test_pruning_spares_what_names_the_backend_without_belonging_to_it(settled):
    owner = copy.deepcopy(settled.cluster.objects[SERVICE, KEY]["metadata"]["ownerReferences"])
    owner[0]["uid"] = "of an earlier backend"
    metadata = {"name": "other", "namespace": "team", "ownerReferences": owner}
    settled.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    _outcome, writes = await settled.step()
    assert writes == []


async def test_an_invalid_spec_stalls_and_touches_no_child(settled):
    settled.edit(LLM_BACKEND, "smol", lambda obj: obj["spec"]["engine"].update(version="newest"))
    outcome, writes = await settled.step()
    assert outcome == Done()
    assert writes == [("patch_status", "LLMBackend", "smol")]
    assert settled.reason("Stalled") == "InvalidSpec"
    assert "spec.engine.version" in settled.conditions()["Stalled"]["message"]
    assert await settled.step() == (Done(), [])


async def test_a_spec_the_schema_would_refuse_does_not_break_anything(settled):
    settled.edit(LLM_BACKEND, "smol", lambda obj: obj["spec"].pop("engine"))
    await settled.step()
    assert settled.reason("Stalled") == "InvalidSpec"


REFUSALS = [
    pytest.param(errors.Invalid, 422, "spec.x: no", Done, "Stalled", "ChildrenRefused", id="invalid"),
    pytest.param(
        errors.Forbidden, 403, 'exceeded quota: "q"', RequeueAfter, "Reconciling", "QuotaExceeded", id="quota"
    ),
    pytest.param(
        errors.Forbidden, 403, 'User "o" cannot patch', Failed, "Reconciling", "ChildrenRefused", id="missing right"
    ),
]


@pytest.mark.parametrize(("kind", "status", "message", "outcome", "condition", "reason"), REFUSALS)
async def test_a_refused_child_is_told(
    scene, make_backend, make_error, kind, status, message, outcome, condition, reason
):
    scene.put(make_backend())
    scene.cluster.failures["apply", "Service"] = [make_error(kind, status, message)]
    result, writes = await scene.step()
    assert isinstance(result, outcome)
    assert ("apply", "Deployment", "smol") not in writes
    assert scene.reason(condition) == reason
    assert message in scene.conditions()["Ready"]["message"]
    await scene.step()
    assert scene.reason() == "Progressing"


OUTAGES = [
    pytest.param(errors.Unavailable("down"), 0, id="unavailable"),
    pytest.param(
        errors.TooManyRequests("t", status=429, reason="", server_message="slow", retry_after_seconds=7),
        7,
        id="throttled",
    ),
]


@pytest.mark.parametrize(("failure", "wait"), OUTAGES)
async def test_an_outage_is_tried_again_and_writes_no_status(settled, failure, wait):
    settled.cluster.remove(SERVICE, KEY)
    settled.hear()
    settled.cluster.failures["apply", "Service"] = [failure]
    outcome, writes = await settled.step()
    assert (outcome.reason, outcome.retry_after_seconds) == (str(failure), wait)
    assert writes == [("apply", "Service", "smol")]
    assert (await settled.step())[0] == Done()
    assert (SERVICE, KEY) in settled.cluster.objects


async def test_a_backend_deleted_during_the_pass_is_no_error(scene, make_backend):
    scene.put(make_backend())
    scene.cluster.remove(LLM_BACKEND, KEY)
    outcome = await scene.reconciler.reconcile(KEY)
    assert outcome == Done()


async def test_the_deployment_of_another_is_not_reported_as_ours(scene, make_backend):
    status = {"observedGeneration": 1, "replicas": 5, "readyReplicas": 5, "updatedReplicas": 5}
    foreign = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "smol", "namespace": "team"}}
    scene.put(foreign | {"status": status})
    scene.put(make_backend())
    await scene.step()
    assert scene.reason("Stalled") == "NameTaken"
    assert scene.cluster.objects[LLM_BACKEND, KEY]["status"]["readyReplicas"] == 0


async def test_every_child_is_of_a_kind_that_is_watched(settled):
    kinds = {kind for kind, _key in settled.cluster.objects if kind != LLM_BACKEND}
    assert kinds <= set(CHILD_KINDS)
    assert SERVICE_ACCOUNT in kinds


async def test_marks_that_others_add_are_no_reason_to_write(settled):
    """The Deployment's own controller adds an annotation for each revision; people and meshes add labels."""

    def mark(obj):
        obj["metadata"].setdefault("annotations", {})["deployment.kubernetes.io/revision"] = "1"
        obj["metadata"]["labels"]["team"] = "search"

    settled.edit(DEPLOYMENT, "smol", mark)
    _outcome, writes = await settled.step()
    assert [write for write in writes if write[0] != "patch_status"] == []


async def test_a_stripped_label_is_put_back(settled):
    settled.edit(SERVICE, "smol", lambda obj: obj["metadata"]["labels"].pop("app.kubernetes.io/managed-by"))
    _outcome, writes = await settled.step()
    assert ("apply", "Service", "smol") in writes


async def test_each_decision_is_one_line_with_backend_and_reason(scene, make_backend, caplog):
    caplog.set_level("INFO", "penstock.reconcile.children")
    scene.put(make_backend())
    await scene.step()
    lines = [record for record in caplog.records if record.name == "penstock.reconcile.children"]
    applied = [name for verb, _kind, name in scene.cluster.writes if verb == "apply"]
    assert len(lines) == len(applied)
    assert {(line.backend, line.reason) for line in lines} == {("team/smol", "it was missing")}
    assert all(line.took >= 0 for line in lines)


async def test_what_is_worth_an_event_is_announced_once(cluster, settings, make_backend):
    told = []
    cache = Cache()
    reconciler = Reconciler(cluster, cache, settings, announce=lambda backend, what: told.append((backend, what)))
    wrong = make_backend()
    wrong["spec"]["engine"]["version"] = "newest"
    cache.store(LLM_BACKEND, cluster.put(wrong))
    for _ in range(2):
        await reconciler.reconcile(KEY)
    ((backend, transition),) = told
    assert backend["metadata"]["name"] == "smol"
    assert (transition.reason, transition.warning) == ("InvalidSpec", True)


async def test_a_write_that_was_cut_short_is_done_again_even_if_the_child_looks_right(settled):
    """The edit is reverted, and what follows the apply, giving up what a merge patch has taken, meets an outage."""
    settled.edit(SERVICE, "smol", lambda obj: obj["spec"]["selector"].update(extra="x"))
    settled.cluster.failures["patch", "Service"] = [errors.Unavailable("down")]
    outcome, _writes = await settled.step()
    assert isinstance(outcome, Failed)
    settled.edit(SERVICE, "smol", lambda obj: obj["spec"]["selector"].pop("extra"))
    _outcome, writes = await settled.step()
    assert ("apply", "Service", "smol") in writes


async def test_a_failure_tells_how_far_the_pass_got(scene, make_backend):
    scene.put(make_backend())
    for kind in ("ServiceAccount", "ConfigMap", "Deployment"):
        scene.cluster.failures["apply", kind] = [errors.Unavailable("down")]
    reached = []
    while isinstance(outcome := (await scene.step())[0], Failed):
        reached.append(outcome.reached)
    assert len(reached) == 3
    assert reached == sorted(set(reached))


def edit_before_status_write(scene, number, change):
    """Let somebody edit the backend right before the API server handles a write of status; the answer tells of it."""
    patch_status, writes = scene.cluster.patch_status, []

    async def after_an_edit(obj):
        writes.append(obj)
        if len(writes) == number:
            edited = copy.deepcopy(scene.cluster.objects[LLM_BACKEND, KEY])
            change(edited)
            scene.cluster.put(edited)
        return await patch_status(obj)

    scene.cluster.patch_status = after_an_edit


async def passes(scene):
    """Make passes until none asks for another at once."""
    while (await scene.reconciler.reconcile(KEY)) == RequeueAfter(0.0):
        yield


def become_ready(scene):
    report = {"observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}
    scene.edit(DEPLOYMENT, "smol", lambda obj: obj.update(status=report) or obj["metadata"].update(generation=0))


@pytest.mark.parametrize("seen_before", [False, True], ids=["the first write", "a later write"])
async def test_an_edit_that_only_the_answer_to_a_status_write_tells_of_is_applied(scene, make_backend, seen_before):
    scene.put(make_backend())
    if seen_before:
        await scene.step()
        become_ready(scene)
    edit_before_status_write(scene, 1, lambda obj: obj["spec"].update(replicas=7))
    again = 0
    async for _pass in passes(scene):
        again += 1
        # Whatever is said of a generation is said of children that are for it.
        assert scene.cluster.objects[LLM_BACKEND, KEY]["status"]["observedGeneration"] == 1
    assert again == 1
    assert scene.cluster.objects[DEPLOYMENT, KEY]["spec"]["replicas"] == 7
    assert scene.cluster.objects[LLM_BACKEND, KEY]["status"]["observedGeneration"] == 2


async def test_an_edit_during_a_pass_that_fails_is_not_made_to_wait(scene, make_backend, make_error):
    scene.put(make_backend())
    scene.cluster.failures["apply", "Service"] = [make_error(errors.Forbidden, 403, 'User "o" cannot patch')]
    edit_before_status_write(scene, 2, lambda obj: obj["spec"].update(replicas=7))
    assert await scene.reconciler.reconcile(KEY) == RequeueAfter(0.0)


async def test_a_fix_of_an_invalid_spec_that_only_an_answer_tells_of_is_applied(scene, make_backend):
    broken = make_backend()
    broken["spec"]["engine"]["version"] = "newest"
    scene.put(broken)
    edit_before_status_write(scene, 1, lambda obj: obj["spec"]["engine"].pop("version"))
    async for _pass in passes(scene):
        pass
    assert (DEPLOYMENT, KEY) in scene.cluster.objects


async def wait_for_its_place(scene, looks):
    """Make passes as the queue would, and return the waits between them."""
    waits = []
    for _ in range(looks):
        outcome, _writes = await scene.step()
        waits.append(outcome.seconds)
        scene.clock += outcome.seconds
    return waits


async def test_a_child_that_a_finalizer_holds_is_looked_at_ever_more_rarely_and_told(settled):
    held = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x.example/hold"]}
    settled.edit(SERVICE, "smol", lambda obj: obj["metadata"].update(held))
    assert await wait_for_its_place(settled, 2) == [0.5, 0.5]
    assert settled.reason() != "NameTaken"
    waits = await wait_for_its_place(settled, 8)
    assert waits == sorted(waits)
    assert waits[-1] == 30
    assert (settled.reason(), settled.reason("Reconciling")) == ("NameTaken", "NameTaken")
    assert "Service smol is being deleted" in settled.conditions()["Ready"]["message"]
    assert "x.example/hold" in settled.conditions()["Ready"]["message"]
    settled.cluster.remove(SERVICE, KEY)
    settled.hear()
    assert (await settled.step())[0] == Done()
    assert settled.reason() != "NameTaken"


async def test_the_next_child_that_goes_is_looked_at_soon_again(settled):
    held = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    for _ in range(2):
        settled.edit(SERVICE, "smol", lambda obj: obj["metadata"].update(held))
        assert (await wait_for_its_place(settled, 5))[0] == 0.5
        settled.cluster.remove(SERVICE, KEY)
        settled.hear()
        await settled.step()


async def test_a_child_whose_deletion_only_the_answer_tells_of_is_waited_for(settled):
    apply = settled.cluster.apply

    async def of_one_that_goes(obj):
        answer = await apply(obj)
        answer["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return answer

    settled.edit(SERVICE, "smol", lambda obj: obj["spec"].update(type="NodePort"))
    settled.cluster.apply = of_one_that_goes
    assert await settled.reconciler.reconcile(KEY) == RequeueAfter(0.5)


FORGED = {
    "of another group": {"apiVersion": "other.example/v1", "kind": "LLMBackend", "name": "smol"},
    "of another kind": {"apiVersion": LLM_BACKEND.api_version, "kind": "Other", "name": "smol"},
}


@pytest.mark.parametrize("owner", FORGED.values(), ids=FORGED.keys())
async def test_an_owner_that_only_looks_like_an_earlier_backend_is_told(scene, make_backend, owner):
    scene.put(make_backend())
    owners = [{**owner, "uid": "x", "controller": True}]
    metadata = {"name": "smol-limiter", "namespace": "team", "ownerReferences": owners}
    scene.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    await scene.step()
    assert scene.reason("Stalled") == "NameTaken"
    assert f"belongs to {owner['kind']} smol" in scene.conditions()["Stalled"]["message"]


async def test_an_earlier_backend_of_an_older_api_version_is_an_earlier_backend(scene, make_backend):
    scene.put(make_backend())
    owner = {"apiVersion": f"{LLM_BACKEND.group}/v1alpha0", "kind": "LLMBackend", "name": "smol", "uid": "x"}
    metadata = {"name": "smol-limiter", "namespace": "team", "ownerReferences": [owner | {"controller": True}]}
    scene.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    assert (await scene.step())[0] == RequeueAfter(0.5)
    assert scene.reason("Stalled") is None


async def fight(scene, rounds):
    """Damage a child as soon as it has been put right, and return the passes that did not put it right."""
    left = 0
    for _ in range(rounds):
        scene.clock += 0.05
        scene.edit(SERVICE, "smol", lambda obj: obj["spec"].update(type="NodePort"))
        outcome, writes = await scene.step()
        if not writes:
            assert isinstance(outcome, RequeueAfter)
            left += 1
    return left


async def test_a_fight_with_somebody_who_is_as_fast_is_slowed_down(settled, caplog):
    assert await fight(settled, 60) == 0
    assert await fight(settled, 60) > 0
    outcome, writes = await settled.step()
    assert writes == []
    settled.clock += outcome.seconds
    outcome, writes = await settled.step()
    assert (outcome, writes) == (Done(), [("apply", "Service", "smol")])
    assert caplog.text.count("others change Service smol as fast as it is put right") == 1


async def test_during_a_fight_the_other_children_are_repaired_and_a_new_spec_is_applied(settled):
    await fight(settled, 120)
    settled.edit(DEPLOYMENT, "smol", lambda obj: obj["spec"].update(replicas=9))
    _outcome, writes = await settled.step()
    assert writes == [("apply", "Deployment", "smol")]
    settled.edit(LLM_BACKEND, "smol", lambda obj: obj["spec"].update(service={"port": 81}))
    _outcome, writes = await settled.step()
    assert ("apply", "Service", "smol") in writes


async def test_an_edit_between_an_apply_and_its_patch_is_not_taken_for_ours(settled):
    apply = settled.cluster.apply

    async def and_somebody_edits(obj):
        answer = await apply(obj)
        if obj["kind"] == "Service" and obj["metadata"]["name"] == "smol":
            settled.cluster.apply = apply
            edited = copy.deepcopy(settled.cluster.objects[SERVICE, KEY])
            edited["spec"]["type"] = "NodePort"
            settled.cluster.put(edited)
        return answer

    settled.edit(SERVICE, "smol", lambda obj: obj["spec"]["selector"].update(app="x"))
    settled.cluster.apply = and_somebody_edits
    assert isinstance(await settled.reconciler.reconcile(KEY), RequeueAfter)
    assert await settled.reconciler.reconcile(KEY) == Done()
    assert settled.cluster.objects[SERVICE, KEY]["spec"]["type"] != "NodePort"
    assert "app" not in settled.cluster.objects[SERVICE, KEY]["spec"]["selector"]


async def test_a_very_long_pause_is_cut_short(settled):
    settled.cluster.remove(SERVICE, KEY)
    settled.hear()
    pause = errors.TooManyRequests("t", status=429, reason="", server_message="", retry_after_seconds=86_400)
    settled.cluster.failures["apply", "Service"] = [pause]
    assert (await settled.step())[0].retry_after_seconds == 60


async def test_nothing_is_remembered_of_a_backend_that_is_gone(settled):
    """Even when its children have vanished before it, as they do when somebody deletes all with one command."""
    for kind, key in [place for place in settled.cluster.objects if place[0] != LLM_BACKEND]:
        settled.cluster.remove(kind, key)
    settled.hear()
    settled.cluster.remove(LLM_BACKEND, KEY)
    settled.hear()
    await settled.step()
    assert not settled.reconciler._children._memories


async def test_a_refusal_is_told_however_often_it_comes(settled, make_error):
    for _ in range(130):
        settled.clock += 0.05
        settled.edit(SERVICE, "smol", lambda obj: obj["spec"].update(type="NodePort"))
        settled.cluster.failures["apply", "Service"] = [make_error(errors.Invalid, 422, "no")]
        await settled.step()
        assert settled.reason("Stalled") == "ChildrenRefused"
