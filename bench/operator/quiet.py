"""Quiet: after a mass apply the operator comes to rest, and then writes nothing and costs next to nothing."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping

from bench import results
from bench.operator import fleet
from bench.operator.world import World, world
from bench.results import Row
from e2e.beside.administrator import Object
from e2e.beside.waiting import wait_for
from e2e.cache import say
from e2e.cluster import gobuild

BACKENDS = 200
QUIET_SECONDS = 20.0
STILL_SECONDS = 5.0
PATIENCE_SECONDS = 120.0
CPU_PERCENT = 1.0
REPLICA_BACKENDS = 10
REPLICAS_EACH = 10
REPLICAS_IDLE_SECONDS = 60.0
NAMESPACE = "quiet"
KINDS = ("LLMBackend", *fleet.CHILD_KINDS)


def run(*, idle_seconds: float) -> list[Row]:
    """Measure and return the rows.

    Args:
        idle_seconds: How long nothing may happen.
    """
    rows = []
    with world(controller_manager=False) as made:
        rows += _mass_apply(made, idle_seconds)
        rows += _applied_again(made)
    with world(controller_manager=True) as made:
        rows.append(_replicas(made, min(idle_seconds, REPLICAS_IDLE_SECONDS)))
    return rows


def _mass_apply(made: World, idle_seconds: float) -> list[Row]:
    operator = made.operator().until_ready()
    made.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    since = made.log.position()
    fleet.apply_all(made, fleet.backends(NAMESPACE, BACKENDS))
    applied = time.time()
    last = made.quiet_since(since, seconds=STILL_SECONDS, patience_seconds=PATIENCE_SECONDS)
    say(f"quiet: {BACKENDS} backends at rest {last - applied:.1f} s after the last was applied; now idle")
    fleet.check(made, NAMESPACE, BACKENDS)  # silence alone could be that of an operator that does nothing
    since, cpu, began = made.log.position(), operator.cpu_seconds(), time.monotonic()
    time.sleep(idle_seconds)
    percent = 100 * (operator.cpu_seconds() - cpu) / (time.monotonic() - began)
    writes = made.writes(since)
    for call in writes[:5]:
        say(f"quiet: written while idle: {call.verb} {call.resource} {call.namespace}/{call.name} {call.code}")
    return [
        results.at_most(
            f"{BACKENDS} backends applied at once: last write after",
            last - applied,
            "s",
            limit=QUIET_SECONDS,
            bar="quiet within 20 s",
        ),
        results.at_most(
            f"{BACKENDS} backends idle for {idle_seconds:g} s: writes except Lease renewals",
            len(writes),
            "",
            limit=0,
            bar="none",
        ),
        results.at_most(
            f"{BACKENDS} backends idle, no pods: CPU", percent, "% of a core", limit=CPU_PERCENT, bar="below 1 %"
        ),
    ]


def _applied_again(made: World) -> list[Row]:
    """Apply the same files again, compare, and try out: nothing in the cluster may get another version."""
    objects = fleet.backends(NAMESPACE, BACKENDS)
    before = _versions(made)
    since = made.log.position()
    fleet.apply_all(made, objects)
    for obj in objects[:3]:
        made.api.apply(obj, manager="bare", dry_run=True)
    difference = kubectl(made, "diff", "--server-side", "--field-manager=bare", "-f", "-", manifest=objects[0])
    file = made.folder / "backend.json"
    file.write_text(json.dumps(fleet.backend(NAMESPACE, "by-kubectl")))
    for _ in range(2):
        kubectl(made, "apply", "-f", str(file))
    made.quiet_since(since, seconds=STILL_SECONDS, patience_seconds=PATIENCE_SECONDS)
    again = _versions(made)
    kubectl(made, "apply", "-f", str(file))
    difference += kubectl(made, "diff", "-f", str(file))
    time.sleep(STILL_SECONDS)
    changed = [key for key, version in before.items() if again.get(key) != version]
    after = _versions(made)
    changed += [key for key, version in again.items() if after.get(key) != version]
    for key in changed[:5]:
        say(f"quiet: changed by an apply of the same: {key}")
    return [
        results.at_most(
            "same files applied twice, diff and dry run: changed objects", len(changed), "", limit=0, bar="none"
        ),
        results.at_most("kubectl diff of what is applied", len(difference), "characters", limit=0, bar="nothing"),
    ]


def _replicas(made: World, idle_seconds: float) -> Row:
    operator = made.operator().until_ready()
    made.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    wait_for(lambda: made.api.get("ServiceAccount", NAMESPACE, "default"), "service account", seconds=30)
    since = made.log.position()
    fleet.apply_all(made, fleet.backends(NAMESPACE, REPLICA_BACKENDS, replicas=REPLICAS_EACH))
    wanted = REPLICA_BACKENDS * REPLICAS_EACH
    wait_for(lambda: len(made.api.list("Pod", NAMESPACE)) >= wanted, f"{wanted} pods", seconds=PATIENCE_SECONDS)
    made.quiet_since(since, seconds=STILL_SECONDS, patience_seconds=PATIENCE_SECONDS)
    cpu, began = operator.cpu_seconds(), time.monotonic()
    time.sleep(idle_seconds)
    percent = 100 * (operator.cpu_seconds() - cpu) / (time.monotonic() - began)
    return Row(name=f"{REPLICA_BACKENDS} backends with {wanted} replicas, idle: CPU", value=percent, unit="% of a core")


def kubectl(made: World, *arguments: str, manifest: Object | None = None) -> str:
    """Run kubectl and return what it prints; `diff` ends with 1 when there is a difference, which is no error."""
    done = subprocess.run(
        [str(gobuild.binary("kubectl")), f"--kubeconfig={made.plane.kubeconfig}", *arguments],
        input=None if manifest is None else json.dumps(manifest),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode <= (1 if arguments[0] == "diff" else 0), f"kubectl {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def _versions(made: World) -> Mapping[tuple[str, str], str]:
    return {
        (kind, one["metadata"]["name"]): one["metadata"]["resourceVersion"]
        for kind in KINDS
        for one in made.api.list(kind, NAMESPACE)
    }
