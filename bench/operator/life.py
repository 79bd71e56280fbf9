"""The writes that one backend costs over its life: made, its pod becomes ready, deleted."""

from __future__ import annotations

from collections import Counter

from bench import results
from bench.operator import fleet
from bench.operator.world import World, world
from bench.results import Row
from e2e.beside.administrator import Object
from e2e.beside.waiting import wait_for
from e2e.cache import say

MAXIMUM_WRITES = 20
PATIENCE_SECONDS = 60.0
STILL_SECONDS = 3.0
NAMESPACE = "life"
NAME = "one"
READY_CONDITIONS = ("PodScheduled", "Initialized", "ContainersReady", "Ready")


def run() -> list[Row]:
    """Measure and return the rows."""
    with world(controller_manager=True) as made:
        made.operator().until_ready()
        made.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        wait_for(lambda: made.api.get("ServiceAccount", NAMESPACE, "default"), "service account", seconds=30)
        since = made.log.position()
        made.api.apply(fleet.backend(NAMESPACE, NAME))
        pods = wait_for(lambda: made.api.list("Pod", NAMESPACE), "pod", seconds=PATIENCE_SECONDS)
        for step in ({"phase": "Pending"}, _running(ready=False), _running(ready=True)):
            made.quiet_since(since, seconds=STILL_SECONDS, patience_seconds=PATIENCE_SECONDS)
            made.api.patch("Pod", NAMESPACE, pods[0]["metadata"]["name"], {"status": step}, subresource="status")
        wait_for(lambda: _ready(made), "ready backend", seconds=PATIENCE_SECONDS)
        made.quiet_since(since, seconds=STILL_SECONDS, patience_seconds=PATIENCE_SECONDS)
        made.api.delete("LLMBackend", NAMESPACE, NAME)
        wait_for(lambda: not made.api.list("Deployment", NAMESPACE), "end of the Deployment", seconds=PATIENCE_SECONDS)
        made.quiet_since(since, seconds=STILL_SECONDS, patience_seconds=PATIENCE_SECONDS)
        writes = [call for call in made.writes(since) if call.namespace == NAMESPACE]
    tally = Counter(f"{call.verb} {call.resource}" for call in writes)
    say("life: " + ", ".join(f"{count} × {what}" for what, count in tally.most_common()))
    return [
        results.at_most(
            "writes over the life of one backend with a pod, Events included",
            len(writes),
            "",
            limit=MAXIMUM_WRITES,
            bar="at most 20",
        )
    ]


def _running(*, ready: bool) -> Object:
    answer = "True" if ready else "False"
    started = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    return {
        "phase": "Running",
        "conditions": [
            {"type": kind, "status": answer if kind in READY_CONDITIONS[2:] else "True"} for kind in READY_CONDITIONS
        ],
        "containerStatuses": [
            {"name": "engine", "image": "e", "imageID": "e", "restartCount": 0, "ready": ready, "started": ready,
             "state": started}
        ],
        "initContainerStatuses": [
            {"name": "limiter", "image": "l", "imageID": "l", "restartCount": 0, "ready": ready, "started": True,
             "state": started}
        ],
    }  # fmt: skip


def _ready(made: World) -> bool:
    live = made.api.get("LLMBackend", NAMESPACE, NAME) or {}
    conditions = live.get("status", {}).get("conditions", [])
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)
