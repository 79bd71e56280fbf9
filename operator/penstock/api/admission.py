"""`spec.admission`: how many requests a replica works on, who waits, and who is refused.

All of it may change while replicas run. `AdmissionPolicy` is what the limiter reads from its policy file;
`AdmissionSpec` adds what belongs to the pod, the store that replicas share.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from penstock.api.annotations import ListMap, Matches
from penstock.api.base import ApiModel, Rule
from penstock.api.kubernetes import KeyName, LabelName, ObjectName
from penstock.api.ratelimits import MAXIMUM_QUOTAS, RateLimit

Percent = Annotated[int, Field(ge=0, le=100)]
WaitSeconds = Annotated[int, Field(ge=0, le=3600)]
RequestCount = Annotated[int, Field(ge=1, le=65536)]

NORMAL = "normal"
"""The priority class of requests that have no other; every list of classes has it."""

MAXIMUM_CLASSES = 8


class AdmissionMode(StrEnum):
    """What the limiter does with its decisions."""

    ENFORCE = "Enforce"
    """Refuse what does not fit."""

    SHADOW = "Shadow"
    """Decide and count, and let everything pass."""

    DISABLED = "Disabled"
    """Let everything pass; drain still works."""


class OverloadStatus(StrEnum):
    """What a client is told when the replica is full."""

    SERVICE_UNAVAILABLE = "ServiceUnavailable"
    """503: proxies try another replica."""

    TOO_MANY_REQUESTS = "TooManyRequests"
    """429: clients slow down."""


class AdaptiveMode(StrEnum):
    """Whether limits follow the engine."""

    AUTO = "Auto"
    FIXED = "Fixed"


def _ordered(low: str, high: str) -> Rule:
    """Return the rule that one optional number is at most another."""

    def holds(limits: ApiModel) -> bool:
        smaller, larger = getattr(limits, low), getattr(limits, high)
        return smaller is None or larger is None or smaller <= larger

    return Rule(
        cel=f"!has(self.{low}) || !has(self.{high}) || self.{low} <= self.{high}",
        message=f"`{low}` is more than `{high}`; write minimum <= initial <= maximum",
        holds=holds,
        field=low,
    )


class Concurrency(ApiModel):
    """Requests in flight at one replica; what is left out comes from the engine."""

    initial: RequestCount | None = None
    """Where the limit starts. Default: what the engine can take."""

    minimum: RequestCount | None = None
    """The least the limit may fall to. Default: 1; for llama.cpp its slots."""

    maximum: RequestCount | None = None
    """The most the limit may reach. Default: what the engine can take."""

    rules = (_ordered("minimum", "initial"), _ordered("initial", "maximum"), _ordered("minimum", "maximum"))


class Queue(ApiModel):
    """Requests that wait at a replica for their turn."""

    max_requests: Annotated[int, Field(ge=0, le=65536)] | None = None
    """The most that may wait; 0 refuses at once. Default: 10 times the limit."""

    max_wait_seconds: WaitSeconds = 30
    """The longest one may wait; its priority class may say less. Default: 30."""


class PriorityClass(ApiModel):
    """One class of requests."""

    name: LabelName
    """Name that tenants and the header `x-penstock-priority` refer to."""

    ceiling_percent: Annotated[int, Field(ge=1, le=100)] = 100
    """Share of the limit that this class may fill. Default: 100."""

    reserved_percent: Percent = 0
    """Share of the limit that is kept for this class. Default: 0."""

    sheddable: bool = False
    """Refuse these first under pressure. Default: false."""

    max_wait_seconds: WaitSeconds = 30
    """The longest a request of this class may wait. Default: 30."""

    rules = (
        Rule(
            cel="self.reservedPercent <= self.ceilingPercent",
            message="`reservedPercent` is more than `ceilingPercent` lets the class use; lower it",
            holds=lambda one: one.reserved_percent <= one.ceiling_percent,
            field="reservedPercent",
        ),
    )


BUILT_IN_CLASSES: Final = (
    PriorityClass(name="interactive", ceiling_percent=100, max_wait_seconds=10),
    PriorityClass(name=NORMAL, ceiling_percent=90, max_wait_seconds=30),
    PriorityClass(name="batch", ceiling_percent=60, sheddable=True, max_wait_seconds=60),
)
"""The classes of a backend that names none, the highest first."""


class Targets(ApiModel):
    """Where the engine counts as fully loaded; the admission rate falls above these values."""

    waiting_requests: Annotated[int, Field(ge=1, le=1000)] = 2
    """Requests that wait inside the engine. Default: 2."""

    kv_cache_percent: Annotated[int, Field(ge=10, le=99)] = 85
    """Used share of vLLM's KV cache. Default: 85."""

    time_to_first_token_milliseconds: Annotated[int, Field(ge=10, le=600000)] | None = None
    """Time from admission to the first token, p95 of streams. Default: not looked at."""


class Adaptive(ApiModel):
    """How limits follow what the engine shows."""

    mode: AdaptiveMode = AdaptiveMode.AUTO
    """`Auto` (default), or `Fixed` to keep the limits as written."""

    targets: Targets = Targets()
    """Where the engine counts as fully loaded."""

    maximum_utilization_percent: Annotated[int, Field(ge=10, le=100)] = 80
    """Share of the measured maximum rate that is admitted under pressure; no effect yet. Default: 80."""


# Written out entry by entry: the API servers of Kubernetes 1.29 take the sum over a mapped list for boundless.
_RESERVED = " + ".join(
    f"(self.priorityClasses.size() > {index} ? self.priorityClasses[{index}].reservedPercent : 0)"
    for index in range(MAXIMUM_CLASSES)
)


class AdmissionPolicy(ApiModel):
    """Who is admitted, who waits and who is refused; changes need no restart."""

    mode: AdmissionMode = AdmissionMode.ENFORCE
    """`Enforce` (default), `Shadow` (decide and count, refuse nothing) or `Disabled` (let everything pass)."""

    concurrency: Concurrency = Concurrency()
    """Requests in flight at one replica. Default: from the engine."""

    queue: Queue = Queue()
    """Requests that wait at a replica."""

    overload_status: OverloadStatus = OverloadStatus.SERVICE_UNAVAILABLE
    """Answer of a full replica: `ServiceUnavailable` (503, default) or `TooManyRequests` (429)."""

    priority_classes: Annotated[tuple[PriorityClass, ...], Field(max_length=MAXIMUM_CLASSES), ListMap("name")] = ()
    """Classes of requests, the highest first; one is `normal`. Default: interactive (ceiling 100 %, wait 10 s), normal
    (90 %, 30 s) and batch (60 %, 60 s, sheddable)."""

    rate_limits: Annotated[tuple[RateLimit, ...], Field(max_length=MAXIMUM_QUOTAS), ListMap("name")] = ()
    """Quotas; all are checked before any is charged. Default: none."""

    adaptive: Adaptive = Adaptive()
    """How limits follow what the engine shows. So far the admission rate does; the others stay initial."""

    retry_budget_percent: Percent = 20
    """Share of admitted requests that may be retries of clients. Default: 20."""

    rules = (
        Rule(
            cel=f"!has(self.priorityClasses) || self.priorityClasses.size() == 0 || "
            f"self.priorityClasses.exists(c, c.name == '{NORMAL}')",
            message=f"one class must be named `{NORMAL}`: requests that have no other class get it",
            holds=lambda policy: any(one.name == NORMAL for one in policy.classes),
            field="priorityClasses",
        ),
        Rule(
            cel=f"!has(self.priorityClasses) || {_RESERVED} <= 100",
            message="the `reservedPercent` of all classes may add up to 100 at most",
            holds=lambda policy: sum(one.reserved_percent for one in policy.priority_classes) <= 100,
            field="priorityClasses",
        ),
    )

    @property
    def classes(self) -> tuple[PriorityClass, ...]:
        """Return the priority classes in force, the highest first."""
        return self.priority_classes or BUILT_IN_CLASSES


RedisUrl = Annotated[
    str,
    Field(max_length=512),
    Matches(
        r"^rediss?://[A-Za-z0-9.:\[\]-]+(/[0-9]{1,3})?$",
        "must be redis://host:port/database or rediss://..., without credentials; "
        "put a URL with a password into a Secret and name it in `secretRef`",
    ),
]
"""Where a Redis or Valkey listens; no credentials, since the object is readable by many."""


class StoreSecretReference(ApiModel):
    """One key of a Secret in the backend's namespace that holds the store's URL."""

    name: ObjectName
    """Name of the Secret."""

    key: KeyName = "url"
    """Key in it that holds the URL, such as `rediss://user:password@host:6379/0`. Default: `url`."""


class RedisStore(ApiModel):
    """A Redis or Valkey: exactly one of the fields."""

    url: RedisUrl | None = None
    """Its URL, without credentials."""

    secret_ref: StoreSecretReference | None = None
    """A Secret that holds its URL; mounted into the limiter only."""

    rules = (
        Rule(
            cel="has(self.url) != has(self.secretRef)",
            message="write exactly one of `url` and `secretRef`",
            holds=lambda store: (store.url is None) != (store.secret_ref is None),
        ),
    )


class SharedStore(ApiModel):
    """Where replicas count together."""

    redis: RedisStore
    """A Redis or Valkey."""


class AdmissionSpec(AdmissionPolicy):
    """Who is admitted, who waits and who is refused; changes need no restart."""

    shared_store: SharedStore | None = None
    """Makes quotas exact over all replicas. Default, and while the store does not answer: each replica has its share.
    Connections are always counted so."""
