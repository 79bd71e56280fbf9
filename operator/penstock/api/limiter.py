"""`spec.limiter`: the sidecar that every request passes."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from penstock.api.base import ApiModel
from penstock.api.kubernetes import ImageReference, Resources

MAXIMUM_BODY_MEBIBYTES = 32
BodyMebibytes = Annotated[int, Field(ge=1, le=1024)]


class LogLevel(StrEnum):
    """How much the limiter logs."""

    DEBUG = "Debug"
    INFO = "Info"
    WARNING = "Warning"
    ERROR = "Error"


class LimiterSpec(ApiModel):
    """The limiter, the sidecar that every request passes."""

    image: ImageReference | None = None
    """Image of the limiter. Default: the operator's own."""

    resources: Resources = Resources(requests={"cpu": "100m", "memory": "128Mi"}, limits={"memory": "256Mi"})
    """Requests and limits of the limiter. Default: 100m CPU and 128Mi requested, 256Mi the limit, no CPU limit."""

    log_level: LogLevel = LogLevel.INFO
    """`Debug`, `Info` (default), `Warning` or `Error`. Takes effect without a restart."""

    maximum_body_mebibytes: BodyMebibytes = MAXIMUM_BODY_MEBIBYTES
    """Largest request body in MiB; larger ones get 413. Default: 32. Takes effect without a restart."""
