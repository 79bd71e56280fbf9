"""`spec.health` and `spec.drain`: how long a replica may take to start, to make progress, and to leave."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from penstock.api.base import ApiModel, Rule


class Warmup(StrEnum):
    """The request a replica serves before it is ready."""

    AUTO = "Auto"
    CHAT = "Chat"
    COMPLETIONS = "Completions"
    EMBEDDINGS = "Embeddings"
    DISABLED = "Disabled"


class HealthPolicy(ApiModel):
    """What counts as healthy; changes need no restart."""

    stall_timeout_seconds: Annotated[int, Field(ge=5, le=3600)] = 60
    """Seconds without any progress on the work in flight after which the engine is stalled. Default: 60. Not acted
    on yet."""

    warmup: Warmup = Warmup.AUTO
    """Request that the engine must serve before a replica is ready: `Auto` (default, from the model's tasks), `Chat`,
    `Completions`, `Embeddings` or `Disabled`. Not acted on yet."""


class HealthSpec(HealthPolicy):
    """How long the engine may take, and what counts as healthy."""

    startup_timeout_seconds: Annotated[int, Field(ge=10, le=86400)] | None = None
    """Seconds from the engine's start until it must serve, loading the model included. Default: from
    `model.sizeMebibytes`, else 1800."""


class DrainSpec(ApiModel):
    """How a replica leaves: it stops taking requests, finishes those it has, then ends."""

    lame_duck_seconds: Annotated[int, Field(ge=0, le=600)] = 10
    """Seconds in which a leaving replica is not ready but still accepts requests. Default: 10."""

    timeout_seconds: Annotated[int, Field(ge=0, le=7200)] = 300
    """Seconds that running requests get to finish after that. Default: 300."""

    rules = (
        Rule(
            cel="self.lameDuckSeconds + self.timeoutSeconds <= 7200",
            message="`lameDuckSeconds` and `timeoutSeconds` may add up to 7200 seconds (two hours) at most",
            holds=lambda drain: drain.lame_duck_seconds + drain.timeout_seconds <= 7200,
        ),
    )
