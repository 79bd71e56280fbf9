"""A status is written when there is something new to say, at once when tools wait for it, else a moment later."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from penstock.api.backend import LLMBackend
from penstock.api.status import SignalOrigin
from penstock.fleet.law import Rate, Rule
from penstock.fleet.target import FleetView
from penstock.kube import errors
from penstock.kube.kinds import DEPLOYMENT, LLM_BACKEND, POD
from penstock.reconcile.cache import Cache
from penstock.reconcile.obstacles import LOOK_SECONDS
from penstock.reconcile.report import SETTLE_SECONDS, Reporter
from penstock.resources.objects import Key

KEY = Key("team", "smol")


class Scene:
    """A backend, its Deployment and its pods in the cache, and what was written of its status."""

    def __init__(self, raw):
        self.raw = {**raw, "metadata": {**raw["metadata"], "uid": "b", "generation": 1, "resourceVersion": "1"}}
        self.cache = Cache()
        self.clock = 1000.0
        self.written = []
        self.reads = []
        self.keeps = lambda status: status
        self.failure = None
        self.version = 10
        self.reporter = Reporter(self, self.cache, clock=lambda: self.clock)

    async def patch_status(self, obj):
        if self.failure is not None:
            raise self.failure
        self.written.append(obj["status"])
        return self.stored(**self.keeps(obj["status"]))

    async def get(self, kind, key):
        self.reads.append((kind.name, key.name))
        raise errors.NotFound("get", status=404, reason="NotFound", server_message="")

    def stored(self, **status):
        self.raw = {**self.raw, "status": status}
        return self.raw

    def deployment(self, message="", **status):
        self.version += 1
        conditions = [{"type": "ReplicaFailure", "status": "True", "message": message}] if message else []
        owner = {"apiVersion": LLM_BACKEND.api_version, "kind": "LLMBackend", "name": "smol", "uid": "b"}
        self.cache.store(
            DEPLOYMENT,
            {
                "metadata": {
                    "name": "smol",
                    "namespace": "team",
                    "uid": "d",
                    "resourceVersion": str(self.version),
                    "annotations": {"serving.penstock.dev/revision": "smol-0123456789"},
                    "ownerReferences": [owner | {"controller": True}],
                },
                "status": {"observedGeneration": 1, "conditions": conditions, **status},
            },
        )

    async def report(self, **more):
        return await self.reporter.report(KEY, self.raw, LLMBackend.parse(self.raw), **more)


@pytest.fixture
def scene(make_backend):
    return Scene(make_backend())


async def test_the_first_report_says_that_nothing_is_known(scene):
    report = await scene.report()
    assert len(scene.written) == 1
    assert report.backend["status"] == scene.written[0]
    assert (report.transition, report.look_again_seconds) == (None, None)


async def test_the_same_again_is_not_written(scene):
    await scene.report()
    await scene.report()
    assert len(scene.written) == 1


async def test_readiness_is_written_at_once_and_announced(scene):
    await scene.report()
    scene.deployment(replicas=1, updatedReplicas=1, readyReplicas=1)
    report = await scene.report()
    assert scene.written[-1]["readyReplicas"] == 1
    assert (report.transition.reason, report.transition.warning) == ("AllReplicasReady", False)
    assert report.look_again_seconds is None


async def test_a_sharper_picture_waits_a_moment_and_a_burst_is_one_write(scene):
    scene.deployment(replicas=0)
    await scene.report()
    for replicas in (1, 2, 3):
        scene.deployment(replicas=replicas, updatedReplicas=replicas)
        report = await scene.report()
        assert 0 < report.look_again_seconds <= SETTLE_SECONDS
        scene.clock += SETTLE_SECONDS / 10
    assert len(scene.written) == 1
    scene.clock += report.look_again_seconds
    await scene.report()
    assert [status["replicas"] for status in scene.written] == [0, 3]


async def test_a_condition_of_somebody_else_is_not_answered_with_a_write(scene):
    await scene.report()
    for reason in ("Approved", "Renewed"):
        foreign = {"type": "example.com/Approved", "status": "True", "reason": reason, "lastTransitionTime": "t"}
        scene.stored(**{**scene.written[0], "conditions": [foreign, *scene.written[0]["conditions"]]})
        await scene.report()
    assert len(scene.written) == 1


async def test_a_crd_that_drops_a_field_is_not_told_about_it_again_and_again(scene):
    scene.deployment(replicas=1)
    scene.keeps = lambda status: {name: value for name, value in status.items() if name != "rollout"}
    for _ in range(3):
        await scene.report()
        scene.clock += 60
    assert scene.written[0]["rollout"] == {"currentRevision": "smol-0123456789"}
    assert len(scene.written) == 1


async def test_a_hand_that_edits_our_status_is_corrected(scene):
    await scene.report()
    scene.stored(**{**scene.written[0], "replicas": 7})
    scene.clock += SETTLE_SECONDS
    await scene.report()
    assert [status["replicas"] for status in scene.written] == [0, 0]


async def test_a_backend_that_is_ready_costs_no_read(make_backend):
    claim = {"persistentVolumeClaim": {"claimName": "models", "path": "/m.gguf"}}
    scene = Scene(make_backend(model={"name": "m", "source": claim}))
    scene.deployment(replicas=1, updatedReplicas=1, readyReplicas=1)
    await scene.report()
    assert scene.reads == []
    scene.deployment(replicas=1, updatedReplicas=1)
    report = await scene.report()
    assert scene.reads == [("PersistentVolumeClaim", "models")]
    assert report.look_again_seconds is not None
    ready = next(entry for entry in scene.written[-1]["conditions"] if entry["type"] == "Ready")
    assert ready["reason"] == "WaitingForVolume"


async def test_a_refusal_that_can_end_without_an_event_is_looked_at_again(scene):
    scene.deployment("exceeded quota: few, requested: pods=1", replicas=0)
    report = await scene.report()
    assert scene.reads == [("ResourceQuota", "few")]
    assert report.look_again_seconds == LOOK_SECONDS


async def test_a_pod_that_may_be_stuck_is_looked_at_again(scene):
    scene.deployment(replicas=1, updatedReplicas=1)
    scene.cache.store(
        POD,
        {
            "metadata": {
                "name": "smol-1",
                "namespace": "team",
                "uid": "p",
                "labels": {"serving.penstock.dev/backend": "smol"},
            },
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
        },
    )
    assert (await scene.report()).look_again_seconds is not None


@pytest.mark.parametrize("failure", [errors.NotFound, errors.Conflict], ids=["gone", "made anew"])
async def test_a_backend_that_is_gone_meanwhile_is_no_failure(scene, make_error, failure):
    scene.failure = make_error(failure, 404, "gone")
    report = await scene.report()
    assert (report.backend, report.transition) == (scene.raw, None)


MEANWHILE = {
    "its spec was edited": {"generation": 2},
    "its deletion has begun": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
    "it was made anew": {"uid": "another"},
}


@pytest.mark.parametrize("changed", MEANWHILE.values(), ids=MEANWHILE.keys())
async def test_a_backend_that_has_changed_under_a_report_is_told_as_overtaken(scene, changed):
    worked_on = scene.raw
    scene.raw = {**worked_on, "metadata": {**worked_on["metadata"], **changed}}
    report = await scene.reporter.report(KEY, worked_on, LLMBackend.parse(worked_on))
    assert report.overtaken


async def test_a_report_alone_overtakes_nothing(scene):
    assert not (await scene.report()).overtaken


async def test_limits_that_have_to_wait_are_looked_at_again(make_backend):
    scene = Scene(make_backend())
    now = datetime(2026, 1, 1, tzinfo=UTC)
    view = FleetView(
        rate=Rate(per_second=10.0, before=12.5),
        rule=Rule.OVERLOAD,
        limited_by=Rule.OVERLOAD,
        pressure=None,
        origin=SignalOrigin.DIRECT,
        limit_per_replica=8,
        prometheus="",
        answers=True,
        reached=2,
        ready=2,
        ages={},
    )
    scene.reporter = Reporter(
        scene, scene.cache, settle_seconds=0, view=lambda _key: view, now=lambda: now, clock=lambda: scene.clock
    )
    scene.deployment(replicas=1, updatedReplicas=1, readyReplicas=1, availableReplicas=1)
    await scene.report()
    view = replace(view, rate=Rate(per_second=5.0, before=12.5))
    now += timedelta(seconds=20)
    report = await scene.report()
    assert report.look_again_seconds == 40.0
    now += timedelta(seconds=report.look_again_seconds)
    assert (await scene.report()).look_again_seconds is None
    assert scene.written[-1]["admission"]["ratePerMinute"] == 300
