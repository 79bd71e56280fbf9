"""`spec.resilience`: what the limiter does for a request that its own engine cannot serve."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from penstock.api.annotations import ListMap
from penstock.api.base import ApiModel, Rule, Toggle
from penstock.api.kubernetes import ObjectName


class StreamRecovery(StrEnum):
    """What happens to a stream whose engine dies."""

    DISABLED = "Disabled"
    """It ends with an error object."""

    RESUME = "Resume"
    """Another replica goes on with the text so far."""


class Retries(ApiModel):
    """Tries after the first, on the limiter's side."""

    maximum: Annotated[int, Field(ge=0, le=3)] = 1
    """Tries after the first; none once a byte was sent. Default: 1."""


class Breaker(ApiModel):
    """When to stop asking an engine that fails."""

    consecutive_failures: Annotated[int, Field(ge=1, le=1000)] = 5
    """Failures in a row that open the breaker. Default: 5."""

    open_seconds: Annotated[int, Field(ge=1, le=3600)] = 5
    """How long it stays open at first; doubled each time. Default: 5."""

    maximum_open_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    """The longest it stays open. Default: 60."""

    half_open_probes: Annotated[int, Field(ge=1, le=100)] = 1
    """Requests let through at a time while it is half open. Default: 1."""

    successes_to_close: Annotated[int, Field(ge=1, le=100)] = 2
    """Successes that close it. Default: 2."""

    rules = (
        Rule(
            cel="self.openSeconds <= self.maximumOpenSeconds",
            message="`openSeconds` is more than `maximumOpenSeconds`; raise the maximum",
            holds=lambda breaker: breaker.open_seconds <= breaker.maximum_open_seconds,
            field="openSeconds",
        ),
    )


class Fallback(ApiModel):
    """Another LLMBackend of the namespace."""

    name: ObjectName
    """Its name."""


class ResilienceSpec(ApiModel):
    """What is done for a request that the own engine cannot serve; changes need no restart."""

    retries: Retries = Retries()
    """Tries after the first."""

    breaker: Breaker = Breaker()
    """When to stop asking an engine that fails."""

    spillover: Toggle = Toggle.ENABLED
    """Hand requests to a ready replica of this backend while the own one cannot take them. Default: Enabled."""

    fallback: Annotated[tuple[Fallback, ...], Field(max_length=4), ListMap("name")] = ()
    """Backends that answer when no replica of this one can, in this order. Default: none."""

    stream_recovery: StreamRecovery = StreamRecovery.DISABLED
    """What happens to a stream whose engine dies: `Disabled` (default, an error object) or `Resume` elsewhere."""
