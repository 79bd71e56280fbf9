"""`spec.rollout`, `spec.upgradePolicy` and `spec.disruption`: how replicas are replaced, and how many may be away."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from penstock.api.base import ApiModel, Toggle


class RolloutStrategy(StrEnum):
    """In which order old and new replicas come and go."""

    AUTO = "Auto"
    """`Surge` where a place is free, else `InPlace`."""

    SURGE = "Surge"
    """Start the new replica first: no loss of capacity, needs a free place."""

    IN_PLACE = "InPlace"
    """Take the old replica away first: needs no free place."""


class RolloutSpec(ApiModel):
    """How replicas are replaced when the pod changes."""

    strategy: RolloutStrategy = RolloutStrategy.AUTO
    """`Auto` (default), `Surge` (new replica first) or `InPlace` (old replica away first)."""

    progress_deadline_seconds: Annotated[int, Field(ge=15, le=172800)] | None = None
    """Seconds without progress after which a rollout has failed. Default: startup time, drain time and 600 more."""

    auto_rollback: Toggle = Toggle.ENABLED
    """Go back to the last good revision when a rollout fails: `Enabled` (default) or `Disabled`. Not acted on yet."""


class UpgradePolicy(StrEnum):
    """When a new release of Penstock replaces replicas."""

    ON_SPEC_CHANGE = "OnSpecChange"
    """Only together with a change of the spec."""

    ROLLING = "Rolling"
    """By itself, a few backends at a time."""


class DisruptionBudget(StrEnum):
    """Whether evictions are held back."""

    AUTO = "Auto"
    DISABLED = "Disabled"


class DisruptionSpec(ApiModel):
    """How many replicas may be evicted at a time."""

    budget: DisruptionBudget = DisruptionBudget.AUTO
    """`Auto` (default: a budget from two replicas on) or `Disabled`."""

    max_unavailable: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Replicas that may be away at a time. Default: a tenth of them, at least 1."""

    block_at_most_seconds: Annotated[int, Field(ge=0, le=86400)] = 1800
    """Seconds for which missing replicas that no node can take may hold back evictions. Default: 1800. Not acted
    on yet."""
