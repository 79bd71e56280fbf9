"""A backend and its pods as the slow loop wants to see them."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.api.backend import LLMBackend
from penstock.fleet.signals import Replica
from penstock.fleet.target import FleetTarget
from penstock.resources.objects import Object, is_terminating
from penstock.status.shapes import mappings, text


def fleet_target(backend: LLMBackend, pods: Iterable[Object], *, policy: str) -> FleetTarget:
    """Return the backend with its pods.

    A backend that is paused keeps the children it has, and so the policy that is in their ConfigMap.
    """
    return FleetTarget(
        uid=backend.metadata.uid,
        engine=backend.spec.engine.type,
        admission=backend.spec.admission,
        policy=None if backend.spec.paused else policy,
        replicas=replicas_of(pods),
    )


def replicas_of(pods: Iterable[Object]) -> tuple[Replica, ...]:
    """Return pods as replicas, always in the same order."""
    return tuple(sorted((_replica(pod) for pod in pods), key=lambda one: one.name))


def _replica(pod: Object) -> Replica:
    ready = any(
        text(one, "type") == "Ready" and text(one, "status") == "True" for one in mappings(pod, "status", "conditions")
    )
    return Replica(
        name=pod["metadata"]["name"],
        uid=text(pod, "metadata", "uid"),
        address=text(pod, "status", "podIP"),
        ready=ready and not is_terminating(pod),
    )
