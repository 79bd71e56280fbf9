"""Quotas: how much may pass in a window, counted in what, by which algorithm, and for whom.

The gate protects the engine; a quota is policy on top of it, so nothing here is needed for safety. Several quotas may
apply to one request, and all are checked before any is charged.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from penstock.api.base import ApiModel, Rule
from penstock.api.kubernetes import LabelName

MAXIMUM_QUOTAS = 16


class QuotaUnit(StrEnum):
    """What a quota counts."""

    REQUESTS = "Requests"
    """Requests that reach the engine."""

    TOKENS = "Tokens"
    """Tokens of prompt and answer."""

    PROMPT_TOKENS = "PromptTokens"
    """Tokens of the prompt."""

    CONNECTIONS = "Connections"
    """Connections that clients open."""

    OPEN_CONNECTIONS = "OpenConnections"
    """Connections that are open at the same time; algorithm, window and burst do not matter."""

    __hash__ = str.__hash__  # every request looks units up; the hash of Enum is a Python function


OF_CONNECTIONS = frozenset({QuotaUnit.CONNECTIONS, QuotaUnit.OPEN_CONNECTIONS})
"""What counts connections and not requests."""


class QuotaAlgorithm(StrEnum):
    """How a quota is counted over time."""

    TOKEN_BUCKET = "TokenBucket"  # noqa: S105 - an algorithm's name
    """Refills evenly and may be emptied at once: bursts pass, the average holds."""

    LEAKY_BUCKET = "LeakyBucket"
    """Lets requests pass at an even pace: bursts are spread out."""

    FIXED_WINDOW = "FixedWindow"
    """Counts from one full window to the next: cheap, and up to twice the limit around its edge."""

    SLIDING_WINDOW = "SlidingWindow"
    """Counts the last window at every moment: exact, with no burst at an edge."""


BUCKETS = (QuotaAlgorithm.TOKEN_BUCKET, QuotaAlgorithm.LEAKY_BUCKET)


class QuotaScope(StrEnum):
    """Who shares a quota."""

    REPLICA = "Replica"
    """All requests at one replica."""

    BACKEND = "Backend"
    """All requests at all replicas."""

    TENANT = "Tenant"
    """All requests of one tenant, at all replicas."""

    ADDRESS = "Address"
    """All requests from one client address, at all replicas."""


class Quota(ApiModel):
    """One quota of a tenant."""

    name: LabelName
    """Name in metrics and refusals."""

    unit: QuotaUnit = QuotaUnit.REQUESTS
    """What is counted: `Requests` (default), `Tokens`, `PromptTokens`, `Connections` or `OpenConnections`."""

    algorithm: QuotaAlgorithm = QuotaAlgorithm.TOKEN_BUCKET
    """`TokenBucket` (default), `LeakyBucket`, `FixedWindow` or `SlidingWindow`."""

    limit: Annotated[int, Field(ge=1, le=10**12, json_schema_extra={"format": "int64"})]
    """How many may pass in one window."""

    window_seconds: Annotated[int, Field(ge=1, le=86400)] = 60
    """Length of the window. Default: 60."""

    burst: Annotated[int, Field(ge=1, le=10**12, json_schema_extra={"format": "int64"})] | None = None
    """How many may pass at once, for the two buckets. Default: `limit`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.burst) || self.algorithm in ['TokenBucket', 'LeakyBucket']",
            message="`burst` belongs to TokenBucket and LeakyBucket; remove it or change `algorithm`",
            holds=lambda quota: quota.burst is None or quota.algorithm in BUCKETS,
            field="burst",
        ),
    )

    @property
    def capacity(self) -> int:
        """Return how many may pass at once."""
        return self.limit if self.burst is None else self.burst


class TenantQuota(Quota):
    """One quota of each tenant of a class."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *Quota.rules,
        Rule(
            cel="!self.unit.endsWith('Connections')",
            message="a connection belongs to no tenant; count Requests, or connections in `admission.rateLimits`",
            holds=lambda quota: quota.unit not in OF_CONNECTIONS,
            field="unit",
        ),
    )


class RateLimit(Quota):
    """One quota of the backend."""

    per: QuotaScope = QuotaScope.BACKEND
    """Who shares it: each `Replica`, the whole `Backend` (default), each `Tenant` or each client `Address`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *Quota.rules,
        Rule(
            cel="!self.unit.endsWith('Connections') || self.per != 'Tenant'",
            message="a connection belongs to no tenant; write `per: Address` or count Requests",
            holds=lambda limit: limit.unit not in OF_CONNECTIONS or limit.per is not QuotaScope.TENANT,
            field="per",
        ),
    )
