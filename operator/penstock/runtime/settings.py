"""Everything that can be set about the operator, from flags and environment variables alike.

The field `log_level` is the flag `--log-level` and the variable `PENSTOCK_LOG_LEVEL`; the flag wins. The first sentence
of a field's text is the help of its flag.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class LogLevel(StrEnum):
    """How much the operator logs."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """Who reads the log."""

    HUMAN = "human"
    JSON = "json"


class OperatorSettings(BaseModel):
    """The operator's settings; wrong values are refused at start, in a sentence that names the flag."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    image: Annotated[str, Field(min_length=1)]
    """Image of Penstock that limiters run. Backends that name no limiter image of their own get this one; the
    installation sets it to the operator's own image, so that both are always of one release."""

    namespace: Annotated[str, Field(min_length=1)] = "penstock-system"
    """Namespace the operator itself runs in. The Secret with the drain key lives there, and is the only Secret that
    the operator reads."""

    watch_namespaces: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Namespaces whose backends are served, separated by commas; all when empty. With names given, a Role in each of
    them is enough, and no cluster-wide rights are needed."""

    kubeconfig: Path | None = None
    """Kubeconfig to use. Without it: $KUBECONFIG, then the pod's service account, then ~/.kube/config."""

    workers: Annotated[int, Field(ge=1, le=64)] = 4
    """Backends reconciled at the same time. More of them converge faster after a start and load the API server more;
    beyond 8 a single API server rarely gains."""

    resync_seconds: Annotated[float, Field(ge=0.1, le=86400)] = 600.0
    """Seconds between two comparisons of everything known with everything there. Changes are noticed at once by
    watching; this finds what a broken watch has missed. A comparison reads each kind once and writes nothing when
    nothing has changed. Each wait is varied by a tenth."""

    start_patience_seconds: Annotated[float, Field(ge=0, le=3600)] = 15.0
    """Seconds that a missing CRD or permission is waited for at the start. One `kubectl apply` may bring them and the
    operator together, in any order; after that the operator ends and says what is missing."""

    health_port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """Port of /healthz and /readyz. 0 takes a free one."""

    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 8081
    """Port of /metrics, in Prometheus' text format. 0 takes a free one."""

    listen_address: Annotated[str, Field(min_length=1)] = "0.0.0.0"  # noqa: S104 - kubelet and Prometheus are elsewhere
    """Address both ports listen on."""

    log_level: LogLevel = LogLevel.INFO
    """How much is logged: debug, info, warning or error. `info` has one line per change of a backend's readiness."""

    log_format: LogFormat = LogFormat.HUMAN
    """How log lines look: human or json. JSON has one object per line with time, level, logger and message."""
