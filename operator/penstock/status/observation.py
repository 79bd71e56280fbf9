"""What the cluster holds for one backend: everything that its status is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.fleet.target import FleetView
from penstock.resources.objects import Object
from penstock.status.trouble import Trouble


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What the cluster holds for one backend.

    Attributes:
        generation: Of the backend's spec.
        previous: The backend's status as it is now; empty at first sight.
        deployment: The Deployment, None when there is none.
        pods: Its pods.
        trouble: What was found while validating or applying.
        applied: Whether the children are as the spec wants them; while paused they may not be.
        revision: Name of the ControllerRevision that is wanted; None when there is none.
        claims: The PersistentVolumeClaims that the spec names, as far as they were read; None where there is none.
        events: Events of pods that are stuck, as far as they were read.
        pod_monitors: Whether the cluster serves PodMonitors.
        fleet: What the slow loop knows; None while it knows nothing yet.
        unreadable: What could not be read for want of a right, in words of RBAC: `list events`.
    """

    generation: int
    previous: Object
    deployment: Object | None = None
    pods: Sequence[Object] = ()
    trouble: Trouble | None = None
    applied: bool = True
    revision: str | None = None
    claims: Mapping[str, Object | None] = field(default_factory=dict)
    events: Sequence[Object] = ()
    pod_monitors: bool = True
    fleet: FleetView | None = None
    unreadable: Sequence[str] = ()
