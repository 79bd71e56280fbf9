"""Condition types and reasons of an LLMBackend, and the condition itself.

`Ready` and `Available` are always present. `Reconciling`, `Stalled` and `RolledBack` are present only while True: that
is what kstatus, and so Helm, Flux and Argo CD, read.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from penstock.api.base import ApiModel


class ConditionType(StrEnum):
    """What a condition speaks about."""

    READY = "Ready"
    """The spec is rolled out and all wanted replicas are ready. Always present."""

    AVAILABLE = "Available"
    """At least one replica can serve. Always present."""

    RECONCILING = "Reconciling"
    """Work towards the spec is under way. Present only while True."""

    STALLED = "Stalled"
    """The spec will not be reached without a change. Present only while True."""

    ROLLED_BACK = "RolledBack"
    """The wanted revision failed and the last good one serves. Present only while True."""

    SIGNALS_FRESH = "SignalsFresh"
    """The slow loop sees the fleet and reaches the limiters."""


class ConditionStatus(StrEnum):
    """The three answers of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Reason(StrEnum):
    """Why a condition has its status."""

    ALL_REPLICAS_READY = "AllReplicasReady"
    """Every wanted replica runs the current spec and is ready."""

    SCALED_TO_ZERO = "ScaledToZero"
    """No replica is wanted, and none is left."""

    REPLICAS_AVAILABLE = "ReplicasAvailable"
    """At least one replica serves."""

    NO_REPLICA_READY = "NoReplicaReady"
    """No replica serves."""

    PROGRESSING = "Progressing"
    """First sight of the object, or of a change: children are being written."""

    ROLLING_OUT = "RollingOut"
    """Replicas are being replaced by ones that run the current spec."""

    SCALING = "Scaling"
    """Replicas are being added or removed."""

    WAITING_FOR_MODEL = "WaitingForModel"
    """The engine runs and loads its model."""

    WAITING_FOR_VOLUME = "WaitingForVolume"
    """A volume of the pod does not exist or cannot be mounted yet."""

    NO_FREE_ACCELERATOR = "NoFreeAccelerator"
    """No node has the GPUs that a replica asks for."""

    UNSCHEDULABLE = "Unschedulable"
    """No node can take a replica, for another reason than GPUs."""

    NODE_LOST = "NodeLost"
    """The node of a replica does not answer."""

    IMAGE_PULL_FAILED = "ImagePullFailed"
    """An image cannot be pulled."""

    ENGINE_CRASHING = "EngineCrashing"
    """The engine ends again and again."""

    LIMITER_CRASHING = "LimiterCrashing"
    """The limiter ends again and again."""

    QUOTA_EXCEEDED = "QuotaExceeded"
    """A ResourceQuota leaves no room for the pods."""

    PODS_REFUSED = "PodsRefused"
    """The cluster refuses the pods: Pod Security, a policy or a webhook."""

    INVALID_SPEC = "InvalidSpec"
    """The spec cannot be served as written; the message names the field."""

    NAME_TAKEN = "NameTaken"
    """An object with a child's name exists and is not ours; it is left alone."""

    CHILDREN_REFUSED = "ChildrenRefused"
    """The API server refuses a child object."""

    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    """The rollout did not finish in time."""

    BROKEN_REVISION = "BrokenRevision"
    """The wanted revision failed; it is not tried again before the spec changes."""

    REVISION_FAILED = "RevisionFailed"
    """The wanted revision failed, so the last good one serves; the message says which and why."""

    SUSPENDED = "Suspended"
    """`spec.suspend` is set: replicas are drained, or gone."""

    PAUSED = "Paused"
    """`spec.paused` is set: children are left as they are."""

    ENGINE_EXPOSED = "EngineExposed"
    """The engine answers on the pod's address, past the limiter."""

    IMAGE_VOLUMES_UNAVAILABLE = "ImageVolumesUnavailable"
    """The cluster cannot mount an OCI image as a volume."""

    DOWNLOADING_MODEL = "DownloadingModel"
    """The model is being downloaded."""

    DOWNLOAD_FAILED = "DownloadFailed"
    """The model cannot be downloaded."""

    VOLUME_NOT_SHARED = "VolumeNotShared"
    """A volume that one node at a time can mount is wanted on several."""

    SIGNALS_READ = "SignalsRead"
    """The slow loop sees the fleet."""

    DIRECT_FALLBACK = "DirectFallback"
    """Prometheus is away; the limiters are read directly."""

    PROMETHEUS_UNREACHABLE = "PrometheusUnreachable"
    """Prometheus does not answer."""

    METRICS_MISSING = "MetricsMissing"
    """Prometheus answers, and has no current series of this backend."""

    LIMITERS_UNREACHABLE = "LimitersUnreachable"
    """The limiters do not answer."""

    DELETING = "Deleting"
    """The object is being deleted."""


class Condition(ApiModel):
    """One statement about the backend, with the reason for it."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """What the condition speaks about: `Ready`, `Available`, `Reconciling`, `Stalled`, ..."""

    status: ConditionStatus
    """`True`, `False` or `Unknown`."""

    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """The cause in one CamelCase word."""

    message: Annotated[str, Field(max_length=32768)] = ""
    """The cause in a sentence, with what to do where something can be done."""

    last_transition_time: Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]
    """When `status` last changed (RFC 3339)."""

    observed_generation: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})] | None = None
    """The generation of the spec that the condition speaks about."""
