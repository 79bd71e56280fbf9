"""`status`: what Penstock observes. Written only when something of weight changes; running numbers are metrics."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from penstock.api.annotations import ListMap
from penstock.api.base import ApiModel
from penstock.api.conditions import Condition
from penstock.api.rollout import RolloutStrategy

Generation = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]
Timestamp = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]


class SignalOrigin(StrEnum):
    """Where the signals behind the limits come from."""

    PROMETHEUS = "Prometheus"
    DIRECT = "Direct"
    STALE = "Stale"


class AdmissionStatus(ApiModel):
    """The limits in force, as last changed by much."""

    limit_per_replica: Annotated[int, Field(ge=0)] | None = None
    """Requests in flight that one replica admits."""

    rate_per_minute: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})] | None = None
    """Requests per minute that the backend admits; absent when no rate is in force."""

    source: SignalOrigin | None = None
    """Where the signals come from: `Prometheus`, `Direct` (the limiters themselves) or `Stale`."""

    limited_by: Annotated[str, Field(max_length=253)] | None = None
    """The rule that decided."""

    last_change_time: Timestamp | None = None
    """When the limits last changed by much (RFC 3339)."""


class RolloutStatus(ApiModel):
    """Which revisions of the pod exist, and how they are exchanged."""

    current_revision: Annotated[str, Field(max_length=253)] | None = None
    """The ControllerRevision that is wanted."""

    last_good_revision: Annotated[str, Field(max_length=253)] | None = None
    """The last one that served."""

    failed_revision: Annotated[str, Field(max_length=253)] | None = None
    """The one that failed and is not tried again before the spec changes."""

    strategy: RolloutStrategy | None = None
    """How replicas are exchanged: `Surge` or `InPlace`."""


class LLMBackendStatus(ApiModel):
    """What Penstock observes; users never write it."""

    observed_generation: Generation | None = None
    """Generation of the spec that this status speaks about."""

    conditions: Annotated[tuple[Condition, ...], Field(max_length=16), ListMap("type")] = ()
    """`Ready` and `Available`; `Reconciling`, `Stalled` and `RolledBack` while they are True."""

    replicas: Annotated[int, Field(ge=0)] | None = None
    """Pods that exist."""

    ready_replicas: Annotated[int, Field(ge=0)] | None = None
    """Pods that are ready."""

    updated_replicas: Annotated[int, Field(ge=0)] | None = None
    """Pods that run the current spec."""

    selector: Annotated[str, Field(max_length=1024)] | None = None
    """Label selector of the pods, for autoscalers."""

    url: Annotated[str, Field(max_length=1024)] | None = None
    """Where clients in the cluster send requests."""

    engine_version: Annotated[str, Field(max_length=64)] | None = None
    """The engine's version as far as known."""

    admission: AdmissionStatus | None = None
    """The limits in force."""

    rollout: RolloutStatus | None = None
    """Revisions of the pod."""
