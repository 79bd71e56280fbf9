"""From what was observed to the status of an LLMBackend.

Theory of operation. `Ready` and `Available` are always present. `Reconciling` and `Stalled` are present only while
True, and never both: kstatus, and so Flux, Argo CD and Helm, read a present `Stalled` as failed and a present
`Reconciling` as under way, and take an object without either, and without `Ready`, for finished.

    state of the backend                        Ready    Reconciling  Stalled
    nobody has reported on the children yet     Unknown  True         -
    complete, suspended and drained             True     -            -
    under way, paused with a change waiting,
      or in trouble that may pass               False    True         -
    in trouble that only a change can end       False    -            True

The state with the trouble wins over the one without, and a trouble found while applying (an invalid spec, a taken
name) wins over one found in pods, which may still belong to the last spec that could be applied.

All conditions count the same thing, replicas that are ready, and count it in the same words.
"""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.api.conditions import ConditionStatus, ConditionType, Reason
from penstock.api.exposure import PodMonitorMode
from penstock.engines.engine import for_type
from penstock.engines.version import EngineVersion
from penstock.resources import service
from penstock.resources.engine import CONTAINER
from penstock.resources.labels import selector
from penstock.resources.objects import Object
from penstock.status import cause
from penstock.status.admission import admission_status, signals_fresh
from penstock.status.conditions import Statement, condition_of, conditions
from penstock.status.observation import Observation
from penstock.status.rollout import Rollout, rollout_of
from penstock.status.shapes import mappings, text
from penstock.status.trouble import Trouble

__all__ = ["Observation", "assess", "is_ready"]


def assess(backend: LLMBackend | None, observation: Observation, *, now: str) -> Object:
    """Return the status.

    Args:
        backend: The spec as understood; None when it cannot be, and `observation.trouble` says why.
        observation: What the cluster holds.
        now: The time, for conditions that change (RFC 3339).
    """
    rollout = rollout_of(observation.deployment)
    wanted = backend.spec.wanted_replicas if backend is not None else None
    statements = [*_progress(backend, observation, rollout), _available(rollout, wanted)]
    previous = observation.previous
    fresh = signals_fresh(observation.fleet, previous)
    if fresh is not None:
        statements.append(fresh)
    status: Object = {
        "observedGeneration": observation.generation,
        "conditions": conditions(statements, previous=previous, generation=observation.generation, now=now),
        "replicas": rollout.replicas,
        "readyReplicas": rollout.ready,
        "updatedReplicas": rollout.updated,
    }
    admission = admission_status(observation.fleet, previous, now=now)
    if admission:
        status["admission"] = admission
    if observation.revision is not None and rollout.seen:  # before that nothing runs it, and it is not worth a write
        status["rollout"] = {"currentRevision": observation.revision}
    if backend is None:
        # What was true of the last spec that could be understood still is: its children are left in place.
        kept = ("selector", "url", "engineVersion")
        return status | {name: value for name in kept if (value := text(previous, name))}
    status["selector"] = ",".join(f"{key}={value}" for key, value in sorted(selector(backend).items()))
    status["url"] = service.url(backend)
    version = _running_version(backend, observation.deployment) if rollout.seen else None
    if version is not None:
        status["engineVersion"] = str(version)
    return status


def _running_version(backend: LLMBackend, deployment: Object | None) -> EngineVersion | None:
    """Return the version of the template that runs: it may be a kept one, or have the administrator's default image."""
    containers = mappings(deployment, "spec", "template", "spec", "containers")
    image = next((text(one, "image") for one in containers if one.get("name") == CONTAINER), "")
    return for_type(backend.spec.engine.type).version(image, backend.spec.engine.version)


def is_ready(status: Object) -> bool:
    """Tell whether a status says that nothing is left to do."""
    return text(condition_of(status, ConditionType.READY), "status") == ConditionStatus.TRUE


def _available(rollout: Rollout, wanted: int | None) -> Statement:
    message = f"{rollout.ready} replicas ready" if wanted is None else rollout.count(wanted)
    if rollout.ready:
        return Statement(ConditionType.AVAILABLE, ConditionStatus.TRUE, Reason.REPLICAS_AVAILABLE, message)
    message += ": no replica can serve"
    return Statement(ConditionType.AVAILABLE, ConditionStatus.FALSE, Reason.NO_REPLICA_READY, message)


def _progress(backend: LLMBackend | None, observation: Observation, rollout: Rollout) -> list[Statement]:
    if observation.trouble is not None:
        return _not_ready(observation.trouble, observation.previous)
    if backend is None or not rollout.seen:
        return _unknown(backend)
    wanted = backend.spec.wanted_replicas
    if rollout.complete(wanted) and observation.applied:
        return [_complete(backend, wanted, pod_monitors=observation.pod_monitors)]
    trouble = cause.trouble_of(backend, observation, rollout) or cause.under_way(backend, observation, rollout)
    return _not_ready(trouble, observation.previous)


def _unknown(backend: LLMBackend | None) -> list[Statement]:
    reason = Reason.PROGRESSING
    message = "the children are being written, and nothing is known of their replicas yet"
    if backend is not None and backend.spec.paused:
        reason, message = Reason.PAUSED, "`spec.paused` is set: no child is made or changed"
    return [
        Statement(ConditionType.READY, ConditionStatus.UNKNOWN, reason, message),
        Statement(ConditionType.RECONCILING, ConditionStatus.TRUE, reason, message),
    ]


def _complete(backend: LLMBackend, wanted: int, *, pod_monitors: bool) -> Statement:
    if backend.spec.suspend:
        reason, message = Reason.SUSPENDED, "`spec.suspend` is set: no replica runs"
    elif not wanted:
        reason, message = Reason.SCALED_TO_ZERO, "no replica is wanted"
    else:
        reason, message = Reason.ALL_REPLICAS_READY, f"{wanted} of {wanted} replicas ready, all with the current spec"
        if cause.downloads_again(backend):
            message += f"; {cause.EACH_DOWNLOADS}"
    if backend.spec.monitoring.pod_monitor is PodMonitorMode.ENABLED and not pod_monitors:
        message += "; there is no PodMonitor, since the cluster does not serve them: install the Prometheus Operator"
    if backend.spec.paused:
        reason, message = Reason.PAUSED, f"{message}; `spec.paused` is set: changes will wait"
    return Statement(ConditionType.READY, ConditionStatus.TRUE, reason, message)


def _not_ready(trouble: Trouble, previous: Object) -> list[Statement]:
    message = _fuller(trouble, previous)
    other = ConditionType.STALLED if trouble.stalled else ConditionType.RECONCILING
    return [
        Statement(ConditionType.READY, ConditionStatus.FALSE, trouble.reason, message),
        Statement(other, ConditionStatus.TRUE, trouble.reason, message),
    ]


def _fuller(trouble: Trouble, previous: Object) -> str:
    """Return the message, or the one before it when that says the same and the cause besides.

    Some states of a pod name the cause, and those that follow only repeat that there is one.
    """
    before = condition_of(previous, ConditionType.READY)
    told = text(before, "message")
    if text(before, "reason") == trouble.reason and told.startswith(f"{trouble.message}: "):
        return told
    return trouble.message
