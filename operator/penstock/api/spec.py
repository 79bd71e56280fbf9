"""`spec` as a whole: everything a user may ask of one backend."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from penstock.api import consistency
from penstock.api.admission import AdmissionSpec
from penstock.api.base import ApiModel, Toggle
from penstock.api.engine import EngineSpec
from penstock.api.exposure import MonitoringSpec, ServiceSpec
from penstock.api.kubernetes import Resources
from penstock.api.lifecycle import DrainSpec, HealthSpec
from penstock.api.limiter import LimiterSpec
from penstock.api.model import ModelSpec
from penstock.api.pod import PodSpec
from penstock.api.resilience import ResilienceSpec
from penstock.api.rollout import DisruptionSpec, RolloutSpec, UpgradePolicy
from penstock.api.tenants import TenantsSpec

STARTUP_SECONDS = 1800
"""Startup budget of a model whose size is not known."""

STARTUP_FLOOR_SECONDS = 600
"""What an engine needs besides reading the weights: start, compilation, captured graphs."""

LOAD_MEBIBYTES_PER_SECOND = 50
"""A slow disk or network; the budget must not end a load that still makes progress."""

STARTUP_MAXIMUM_SECONDS = 86400


class LLMBackendSpec(ApiModel):
    """What is wanted: one model, one engine, so many replicas."""

    engine: EngineSpec
    """Which engine runs, in which version, and how it is tuned."""

    model: ModelSpec
    """Which model is served, and where its weights come from."""

    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Replicas (pods). Default: 1. Autoscalers write it through the scale subresource."""

    resources: Resources = Resources()
    """Requests and limits of the engine container, GPUs included."""

    pod: PodSpec = PodSpec()
    """What the pod holds besides the engine and the limiter."""

    service: ServiceSpec = ServiceSpec()
    """The Service in front of the replicas."""

    limiter: LimiterSpec = LimiterSpec()
    """The limiter, the sidecar that every request passes."""

    admission: AdmissionSpec = AdmissionSpec()
    """How many requests a replica works on, who waits, and who is refused."""

    tenants: TenantsSpec | None = None
    """Who the callers are, and what each may have. Default: all are one tenant, and no key is asked for."""

    resilience: ResilienceSpec = ResilienceSpec()
    """What is done for a request that the own engine cannot serve. Checked, and not acted on yet."""

    health: HealthSpec = HealthSpec()
    """How long the engine may take, and what counts as healthy."""

    drain: DrainSpec = DrainSpec()
    """How a replica leaves without cutting a request."""

    disruption: DisruptionSpec = DisruptionSpec()
    """How many replicas may be evicted at a time."""

    rollout: RolloutSpec = RolloutSpec()
    """How replicas are replaced when the pod changes."""

    upgrade_policy: UpgradePolicy = UpgradePolicy.ON_SPEC_CHANGE
    """When a new release of Penstock replaces replicas: `OnSpecChange` (default) or `Rolling` (by itself, paced)."""

    monitoring: MonitoringSpec = MonitoringSpec()
    """How Prometheus finds the replicas."""

    network_policy: Toggle = Toggle.DISABLED
    """NetworkPolicy that opens the API port, and the admin port to Penstock and scrapers only. Default: Disabled."""

    paused: bool = False
    """Leave all children as they are, and keep the status true. Default: false."""

    suspend: bool = False
    """Drain all replicas and keep everything else. Default: false."""

    rules = consistency.RULES

    @property
    def startup_seconds(self) -> int:
        """Return the seconds from the engine's start until it must serve."""
        given, size = self.health.startup_timeout_seconds, self.model.size_mebibytes
        if given is not None:
            return given
        if size is None:
            return STARTUP_SECONDS
        return min(STARTUP_MAXIMUM_SECONDS, STARTUP_FLOOR_SECONDS + math.ceil(size / LOAD_MEBIBYTES_PER_SECOND))

    @property
    def wanted_replicas(self) -> int:
        """Return the replicas that should exist: none while suspended."""
        return 0 if self.suspend else self.replicas
