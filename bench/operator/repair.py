"""Repair: every kind of child is deleted, edited and stripped of its label, and the time until it is right is taken.

What others may own stays: replicas written through the scale subresource, annotations of a mesh, a human's label.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench import results
from bench.operator import fleet
from bench.operator.world import World, world
from bench.results import Row
from e2e.beside.administrator import Object
from e2e.beside.waiting import NotInTime, wait_for
from e2e.cache import say

LIMIT_SECONDS = 0.3
PATIENCE_SECONDS = 30.0
NAMESPACE = "repair"
NAME = "mended"
MANAGED_BY = "app.kubernetes.io/managed-by"
POLL_SECONDS = 0.002


@dataclass(frozen=True)
class Child:
    """A child that is damaged.

    Attributes:
        kind: Its kind.
        name: Its name; None takes the only one of its kind.
        edit: A merge patch that damages it; None where the API server lets nobody change its content.
        intact: Whether it is as it should be.
    """

    kind: str
    name: str | None
    edit: Object | None
    intact: Callable[[Object], bool]


CHILDREN = (
    Child(
        "ServiceAccount",
        NAME,
        {"automountServiceAccountToken": True},
        lambda o: not o["automountServiceAccountToken"],
    ),
    Child("ConfigMap", None, {"data": {"policy.json": "{}"}}, lambda o: o["data"]["policy.json"] != "{}"),
    Child("Service", NAME, {"spec": {"selector": {"stolen": "yes"}}}, lambda o: "stolen" not in o["spec"]["selector"]),
    Child(
        "Service",
        f"{NAME}-replicas",
        {"spec": {"publishNotReadyAddresses": True}},
        lambda o: not o["spec"].get("publishNotReadyAddresses", False),
    ),
    Child(
        "Deployment",
        NAME,
        {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}},
        lambda o: o["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] != 1,
    ),
    Child(
        "PodDisruptionBudget",
        NAME,
        {"spec": {"maxUnavailable": 2}},
        lambda o: o["spec"]["maxUnavailable"] != 2,
    ),
    Child(
        "NetworkPolicy", NAME, {"spec": {"ingress": None}}, lambda o: bool(o["spec"].get("ingress")),
    ),
    Child("ControllerRevision", None, None, lambda _o: True),
)  # fmt: skip


def run(*, repetitions: int) -> list[Row]:
    """Measure and return the rows.

    Args:
        repetitions: How often each damage is done.
    """
    with world(controller_manager=False) as made:
        made.operator().until_ready()
        made.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        since = made.log.position()
        made.api.apply(fleet.backend(NAMESPACE, NAME, replicas=2, networkPolicy="Enabled"))
        made.quiet_since(since, seconds=1.0, patience_seconds=PATIENCE_SECONDS)
        rows = []
        for child in CHILDREN:
            rows += _damage(made, child, repetitions)
        rows.append(_foreign(made))
        return rows


def _damage(made: World, child: Child, repetitions: int) -> list[Row]:
    name = child.name or next(
        one["metadata"]["name"]
        for one in made.api.list(child.kind, NAMESPACE)
        if one["metadata"].get("labels", {}).get(MANAGED_BY) == "penstock"
    )
    took: dict[str, list[float]] = {}
    for _ in range(repetitions):
        live = made.api.get(child.kind, NAMESPACE, name)
        assert live is not None, f"{child.kind} {name} is not there"
        uid = live["metadata"]["uid"]
        made.api.delete(child.kind, NAMESPACE, name)
        took.setdefault("deleted", []).append(_back(made, child, name, _other_than(uid)))
        made.api.patch(child.kind, NAMESPACE, name, {"metadata": {"labels": {MANAGED_BY: None}}})
        took.setdefault("label stripped", []).append(_back(made, child, name, _labelled))
        if child.edit is not None:
            made.api.patch(child.kind, NAMESPACE, name, child.edit)
            took.setdefault("edited", []).append(_back(made, child, name, child.intact))
    return [
        results.at_most(
            f"{child.kind} {name if child.name else ''} {what}: right again, p95".replace("  ", " "),
            _p95(times),
            "s",
            limit=LIMIT_SECONDS,
            bar="below 0.3 s",
            low=min(times),
            high=max(times),
        )
        for what, times in took.items()
    ]


def _back(made: World, child: Child, name: str, holds: Callable[[Object], bool]) -> float:
    """Return the seconds until the child is there and right."""
    began = time.monotonic()

    def right() -> bool:
        live = made.api.get(child.kind, NAMESPACE, name)
        return live is not None and holds(live) and _labelled(live)

    try:
        wait_for(right, f"{child.kind} {name} put right", seconds=PATIENCE_SECONDS, poll_seconds=POLL_SECONDS)
    except NotInTime as error:
        raise NotInTime(f"{error}; it is {made.api.get(child.kind, NAMESPACE, name)}") from None
    return time.monotonic() - began


def _other_than(uid: str) -> Callable[[Object], bool]:
    return lambda live: live["metadata"]["uid"] != uid


def _labelled(live: Object) -> bool:
    return bool(live["metadata"].get("labels", {}).get(MANAGED_BY) == "penstock")


def _foreign(made: World) -> Row:
    """Change what others may own, damage something beside it, and see whether the foreign part survives the repair."""
    made.api.patch("LLMBackend", NAMESPACE, NAME, {"spec": {"replicas": 3}}, subresource="scale")
    mesh = {"metadata": {"annotations": {"mesh.example/inject": "yes"}}}
    label = {"metadata": {"labels": {"team": "search"}}}
    made.api.patch("Service", NAMESPACE, NAME, mesh)
    made.api.patch("Deployment", NAMESPACE, NAME, label)
    since = made.log.position()
    made.api.patch("Service", NAMESPACE, NAME, {"metadata": {"labels": {MANAGED_BY: None}}})
    made.api.patch("Deployment", NAMESPACE, NAME, {"spec": {"paused": True}})
    made.quiet_since(since, seconds=2.0, patience_seconds=PATIENCE_SECONDS)
    service, deployment = (made.api.get(kind, NAMESPACE, NAME) or {} for kind in ("Service", "Deployment"))
    lost = [
        what
        for what, survives in {
            "replicas": deployment["spec"]["replicas"] == 3,
            "annotation": service["metadata"].get("annotations", {}).get("mesh.example/inject") == "yes",
            "label": deployment["metadata"]["labels"].get("team") == "search",
            "repair": _labelled(service) and not deployment["spec"].get("paused", False),
        }.items()
        if not survives
    ]
    for what in lost:
        say(f"repair: not as it should be: {what}")
    return results.at_most("foreign fields lost in repairs", len(lost), "", limit=0, bar="none")


def _p95(times: list[float]) -> float:
    return statistics.quantiles(times, n=20, method="inclusive")[-1] if len(times) > 1 else times[0]
