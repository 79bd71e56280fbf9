"""From what was observed to the status of an LLMBackend.

Theory of operation. `Ready` and `Available` are always present. `Reconciling` and `Stalled` are present only while
True, and never both: kstatus, and so Flux, Argo CD and Helm, read a present `Stalled` as failed and a present
`Reconciling` as under way, and take an object without either, and without `Ready`, for finished.

    state of the backend                        Ready    Reconciling  Stalled
    nobody has reported on the children yet     Unknown  True         -
    complete                                    True     -            -
    under way, or in trouble that may pass      False    True         -
    in trouble that only a change can end       False    -            True

The state with the trouble wins over the one without, and a trouble found while applying (an invalid spec, a taken
name) wins over one found in pods, which may still belong to the last spec that could be applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.api.backend import LLMBackend
from penstock.api.conditions import ConditionStatus, ConditionType, Reason
from penstock.engines.engine import for_type
from penstock.resources import service
from penstock.resources.labels import selector
from penstock.resources.objects import Object
from penstock.status import pods as pod_status
from penstock.status import rollout as rollout_status
from penstock.status.conditions import Statement, conditions
from penstock.status.rollout import Rollout
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
    """

    generation: int
    previous: Object
    deployment: Object | None = None
    pods: Sequence[Object] = ()
    trouble: Trouble | None = None


def assess(backend: LLMBackend | None, observation: Observation, *, now: str) -> Object:
    """Return the status.

    Args:
        backend: The spec as understood; None when it cannot be, and `observation.trouble` says why.
        observation: What the cluster holds.
        now: The time, for conditions that change (RFC 3339).
    """
    rollout = rollout_status.rollout_of(observation.deployment)
    statements = [*_progress(backend, observation, rollout), _available(rollout)]
    status: Object = {
        "observedGeneration": observation.generation,
        "conditions": conditions(
            statements, previous=observation.previous.get("conditions", ()), generation=observation.generation, now=now
        ),
        "replicas": rollout.replicas,
        "readyReplicas": rollout.ready,
        "updatedReplicas": rollout.updated,
    }
    if backend is None:
        # What was true of the last spec that could be understood still is: its children are left in place.
        kept = ("selector", "url", "engineVersion")
        return status | {name: observation.previous[name] for name in kept if name in observation.previous}
    status["selector"] = ",".join(f"{key}={value}" for key, value in sorted(selector(backend).items()))
    status["url"] = service.url(backend)
    version = for_type(backend.spec.engine.type).version_of(backend.spec)
    if version is not None:
        status["engineVersion"] = str(version)
    return status


def _available(rollout: Rollout) -> Statement:
    if rollout.ready:
        message = f"{rollout.ready} of {rollout.replicas} replicas can serve"
        return Statement(ConditionType.AVAILABLE, ConditionStatus.TRUE, Reason.REPLICAS_AVAILABLE, message)
    return Statement(ConditionType.AVAILABLE, ConditionStatus.FALSE, Reason.NO_REPLICA_READY, "no replica can serve")


def _progress(backend: LLMBackend | None, observation: Observation, rollout: Rollout) -> list[Statement]:
    wanted = backend.spec.replicas if backend is not None else 0
    trouble = _trouble(observation, rollout, wanted)
    if trouble is not None:
        return _not_ready(trouble)
    if not rollout.seen:
        text = "the children are written, and nothing is known of their replicas yet"
        return [
            Statement(ConditionType.READY, ConditionStatus.UNKNOWN, Reason.PROGRESSING, text),
            Statement(ConditionType.RECONCILING, ConditionStatus.TRUE, Reason.PROGRESSING, text),
        ]
    if rollout.complete(wanted):
        reason = Reason.ALL_REPLICAS_READY if wanted else Reason.SCALED_TO_ZERO
        text = f"all {wanted} replicas run the current spec and are ready" if wanted else "no replica is wanted"
        return [Statement(ConditionType.READY, ConditionStatus.TRUE, reason, text)]
    return _not_ready(_under_way(observation, rollout, wanted))


def _not_ready(trouble: Trouble) -> list[Statement]:
    other = ConditionType.STALLED if trouble.stalled else ConditionType.RECONCILING
    return [
        Statement(ConditionType.READY, ConditionStatus.FALSE, trouble.reason, trouble.message),
        Statement(other, ConditionStatus.TRUE, trouble.reason, trouble.message),
    ]


def _trouble(observation: Observation, rollout: Rollout, wanted: int) -> Trouble | None:
    if observation.trouble is not None:
        return observation.trouble
    if not rollout.current or rollout.complete(wanted):
        return None
    found = rollout_status.trouble_of(observation.deployment) or pod_status.trouble_of(observation.pods)
    count = f"{rollout.ready} of {wanted} replicas ready"
    if rollout.deadline_exceeded:
        cause = found.message if found is not None else "the rollout has not moved for longer than it may"
        text = f"{count}, and the rollout was given up: {cause}"
        return Trouble(reason=Reason.PROGRESS_DEADLINE_EXCEEDED, message=text, stalled=True)
    return replace(found, message=f"{count}: {found.message}") if found is not None else None


def _under_way(observation: Observation, rollout: Rollout, wanted: int) -> Trouble:
    count = f"{rollout.ready} of {wanted} replicas ready"
    if not rollout.current or rollout.updated < rollout.replicas:
        text = f"{count}; {rollout.updated} of {rollout.replicas} run the current spec"
        return Trouble(reason=Reason.ROLLING_OUT, message=text)
    if rollout.replicas > wanted:
        return Trouble(reason=Reason.SCALING, message=f"{rollout.replicas} replicas exist, {wanted} are wanted")
    if pod_status.is_loading(observation.pods):
        return Trouble(reason=Reason.WAITING_FOR_MODEL, message=f"{count}; the engine loads its model")
    return Trouble(reason=Reason.SCALING, message=f"{count}; the others are being started")
