"""Facts about an engine that depend on nothing: paths, metric names, identity, image. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.api.engine import EngineType


class RequestClass(StrEnum):
    """How the limiter treats a request."""

    GENERATION = "generation"
    """Costs the engine real work: counted, limited, drained."""

    READ = "read"
    """Cheap: passed on at once, never limited."""


class Aggregation(StrEnum):
    """How several series of one metric become one number."""

    SUM = "sum"
    MAX = "max"


@dataclass(frozen=True, kw_only=True)
class MetricName:
    """One signal in the engine's metrics. A missing series means unknown, never zero.

    Attributes:
        names: Its spellings, the current one first; the first that is present counts.
        aggregation: How its series (one per data-parallel rank) are combined.
    """

    names: tuple[str, ...]
    aggregation: Aggregation


@dataclass(frozen=True, kw_only=True)
class MetricNames:
    """The signals that Penstock reads.

    Attributes:
        running: Requests the engine works on.
        waiting: Requests the engine holds back.
        kv_cache_used: Used part of the KV cache, a fraction from 0 to 1; None where the engine does not tell.
        progress: Rises with every step of the engine. Frozen with work in flight, it means a stalled engine.
        prompt_tokens: Prompt tokens computed so far.
        generated_tokens: Tokens generated so far.
    """

    running: MetricName
    waiting: MetricName
    kv_cache_used: MetricName | None
    progress: MetricName
    prompt_tokens: MetricName
    generated_tokens: MetricName


@dataclass(frozen=True, kw_only=True)
class WritableDirectory:
    """A folder the engine must be able to write to; everything else in its container is read-only.

    Attributes:
        name: Name of the volume, a DNS label.
        path: Where it is in the container.
        memory: Whether it is a RAM disk, whose contents count against the memory limit.
        size_mebibytes: Its size limit; None for no limit of its own.
    """

    name: str
    path: str
    memory: bool = False
    size_mebibytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """What is always true of one engine.

    Attributes:
        type: The engine.
        default_image: Image used when the spec names none.
        gpu_images: Image used instead when the pod asks for a GPU, by the vendor's part of the resource name.
        default_concurrency: Requests at a time when the spec names none; None when only the running engine knows.
        default_context_tokens: Tokens of one request when the spec names none; None when the model decides.
        user_id: User the container runs as; the official image need not know it.
        group_id: Its group; volumes are made writable for it.
        health_path: Answers 200 once the model is loaded. It says nothing about progress.
        metrics_path: Prometheus text.
        poll_interval_seconds: Health and metrics may be read this often without disturbing the engine.
        idle_connection_seconds: The engine closes connections that are idle for this long.
        reuse_after_stream: Whether it keeps a connection open after an answer in chunks.
        allowed_paths: Paths that clients may call, without query; everything else is refused.
        metrics: The signals in its metrics.
        share_process_namespace: Whether the pod's containers share one process namespace, so that the engine is not
            PID 1 and SIGTERM ends it even before it has installed a handler.
    """

    type: EngineType
    default_image: str
    gpu_images: Mapping[str, str] = field(default_factory=dict)
    default_concurrency: int | None
    default_context_tokens: int | None
    user_id: int
    group_id: int
    health_path: str
    metrics_path: str
    poll_interval_seconds: float
    idle_connection_seconds: float
    reuse_after_stream: bool
    allowed_paths: Mapping[str, RequestClass]
    metrics: MetricNames
    share_process_namespace: bool


def paths(*, generation: tuple[str, ...], read: tuple[str, ...]) -> dict[str, RequestClass]:
    """Return the allow-list made of both classes."""
    return dict.fromkeys(generation, RequestClass.GENERATION) | dict.fromkeys(read, RequestClass.READ)
