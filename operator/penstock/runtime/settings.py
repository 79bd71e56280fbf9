"""Everything that can be set about the operator, from flags and environment variables alike.

The field `log_level` is the flag `--log-level` and the variable `PENSTOCK_LOG_LEVEL`; the flag wins. The first sentence
of a field's text is the help of its flag.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from penstock.resources.settings import Platform


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
    """Namespace the operator itself runs in. The Secrets with the drain key and the push key live there, and are the
    only Secrets that the operator reads."""

    watch_namespaces: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Namespaces whose backends are served, separated by commas; all when empty. With names given, a Role in each of
    them is enough, and no cluster-wide rights are needed."""

    platform: Platform = Platform.KUBERNETES
    """What decides over the identity of containers: Kubernetes or OpenShift. On OpenShift pods name no user and no
    group, since the project's SecurityContextConstraints assign them and refuse any other."""

    default_vllm_image: str = ""
    """Image of vLLM where a backend names none; empty means the one this release pins. For clusters that pull from a
    registry of their own."""

    default_llama_cpp_image: str = ""
    """Image of llama.cpp where a backend names none; empty means the one this release pins."""

    max_concurrent_rollouts: Annotated[int, Field(ge=1, le=1000)] = 2
    """Backends that may be rolled at the same time because of an upgrade of Penstock. It concerns backends with
    `upgradePolicy: Rolling`; the next one begins when one of them is complete."""

    slow_loop_interval_seconds: Annotated[float, Field(ge=0.5, le=600)] = 15.0
    """Seconds between two rounds of the slow loop, in which signals are read and limits pushed to replicas. Each wait
    is varied by a tenth."""

    prometheus_url: str = ""
    """Address of Prometheus' API, such as http://prometheus.monitoring:9090. Without it engines are watched through
    their limiters, which tell the same, a second old."""

    prometheus_headers: tuple[Annotated[str, Field(pattern=r"^[!#-'*+.^_`|~0-9A-Za-z-]+=[^\r\n]*$")], ...] = ()
    """Headers of queries, NAME=VALUE, separated by commas; for a tenant: X-Scope-OrgID=team-a."""

    prometheus_token_file: Path | None = None
    """File with a bearer token for Prometheus. It is read again for each query."""

    prometheus_ca_file: Path | None = None
    """File with the certificates that Prometheus' own is judged by; the system's without it."""

    prometheus_timeout_seconds: Annotated[float, Field(ge=0.1, le=60)] = 5.0
    """Seconds that Prometheus is waited for, at most one interval; then the limiters are read instead."""

    kubeconfig: Path | None = None
    """Kubeconfig to use. Without it: $KUBECONFIG, then the pod's service account, then ~/.kube/config."""

    workers: Annotated[int, Field(ge=1, le=64)] = 16
    """Backends reconciled at the same time. A pass mostly waits for the API server; more of them converge faster after
    a start, up to what the API server can take."""

    write_rate: Annotated[float, Field(gt=0, le=10000)] = 500.0
    """Writes to the API server per second, all backends together. Backends that fail are retried ever more slowly one
    by one; this protects the API server from all of them at once."""

    lease_name: Annotated[str, Field(min_length=1)] = "penstock-operator"
    """Lease by which the operator's replicas find out who leads. It lives in the operator's namespace. Two
    installations in one namespace need two names."""

    lease_duration_seconds: Annotated[float, Field(ge=1, le=600)] = 15.0
    """Seconds without a renewal after which another replica takes over. Longer than the renew deadline."""

    lease_retry_seconds: Annotated[float, Field(gt=0, le=600)] = 2.0
    """Seconds between renewals, and between looks of a replica that stands by. Each wait is longer by up to a fifth."""

    lease_renew_deadline_seconds: Annotated[float, Field(gt=0, le=600, validate_default=True)] = 10.0
    """Seconds without a successful renewal after which the leader stops writing and ends. Longer than the retry
    interval."""

    resync_seconds: Annotated[float, Field(ge=0.1, le=86400)] = 600.0
    """Seconds between two comparisons of everything known with everything there. Changes are noticed at once by
    watching; this finds what a broken watch has missed. A comparison reads each kind once and writes nothing when
    nothing has changed. Each wait is varied by a tenth."""

    discovery_seconds: Annotated[float, Field(ge=0.1, le=86400)] = 30.0
    """Seconds between two looks at what the cluster serves. PodMonitors that are installed later are used from then
    on, without a restart."""

    watch_patience_seconds: Annotated[float, Field(ge=1, le=86400)] = 600.0
    """Seconds without a sign of life of a watch, while the API server answers, after which /healthz fails. A watch
    that lives is opened again every 90 seconds, and one that is not begins anew after 130, so keep this above 200."""

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

    @field_validator("lease_renew_deadline_seconds")
    @classmethod
    def _longer_than_retry_and_shorter_than_duration(cls, deadline: float, info: ValidationInfo) -> float:
        retry, duration = info.data.get("lease_retry_seconds"), info.data.get("lease_duration_seconds")
        # One that is None here is wrong by itself, and told.
        if duration is not None and deadline >= duration:
            raise ValueError("must be shorter than --lease-duration-seconds: a leader stops before another takes over")
        if retry is not None and deadline <= retry:
            raise ValueError("must be longer than --lease-retry-seconds, so that a failed renewal can be tried again")
        return deadline
