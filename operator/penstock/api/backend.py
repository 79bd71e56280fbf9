"""LLMBackend, the object users write: one model served by replicas of one engine behind Penstock's limiter."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from penstock.api.annotations import ListMap
from penstock.api.base import ApiModel, Rule, cel_text
from penstock.api.conditions import Condition
from penstock.api.engine import EngineSpec, EngineType, FlashAttention, LlamaCppSettings, VLLMSettings
from penstock.api.errors import InvalidBackend, Problem
from penstock.api.kubernetes import GPU_RESOURCE_PATTERN, EnvVar, Resources
from penstock.api.model import BakedSource, ModelSource, ModelSpec, PersistentVolumeClaimSource
from penstock.api.pod import PodSpec, Volume, VolumeMount

GROUP = "serving.penstock.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "LLMBackend"
PLURAL = "llmbackends"

__all__ = [
    "API_VERSION",
    "GROUP",
    "KIND",
    "PLURAL",
    "VERSION",
    "BakedSource",
    "Condition",
    "DrainSpec",
    "EngineSpec",
    "EngineType",
    "EnvVar",
    "FlashAttention",
    "HealthSpec",
    "LLMBackend",
    "LLMBackendSpec",
    "LLMBackendStatus",
    "LimiterSpec",
    "LlamaCppSettings",
    "LogLevel",
    "Metadata",
    "ModelSource",
    "ModelSpec",
    "PersistentVolumeClaimSource",
    "PodSpec",
    "Resources",
    "ServiceSpec",
    "VLLMSettings",
    "Volume",
    "VolumeMount",
]


NAME_PATTERN = "^[a-z]([-a-z0-9]{0,50}[a-z0-9])?$"
_NAME_MESSAGE = (
    "the name becomes the name of a Service: at most 52 lower-case letters, digits and `-`, starting with a letter"
)
_NAME_SUGGESTION = (
    f"self.metadata.name.size() > 50 ? '' : {cel_text(_NAME_MESSAGE + '; write for example ')} + "
    "(self.metadata.name.matches('^[a-z]') ? '' : 'm-') + self.metadata.name.replace('.', '-')"
)
"""Empty for a name that is too long to be mended by itself; the rule's plain message is used then."""


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

    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Image of the limiter. Default: the operator's own."""

    resources: Resources = Resources(requests={"cpu": "100m", "memory": "128Mi"}, limits={"memory": "256Mi"})
    """Requests and limits of the limiter. Default: 100m CPU and 128Mi requested, 256Mi the limit, no CPU limit."""

    log_level: LogLevel = LogLevel.INFO
    """`Debug`, `Info` (default), `Warning` or `Error`. Takes effect without a restart."""

    maximum_body_mebibytes: BodyMebibytes = MAXIMUM_BODY_MEBIBYTES
    """Largest request body in MiB; larger ones get 413. Default: 32. Takes effect without a restart."""


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


class HealthSpec(ApiModel):
    """How long the engine may take."""

    startup_timeout_seconds: Annotated[int, Field(ge=10, le=86400)] = 1800
    """Seconds from the engine's start until it must serve, loading the model included. Default: 1800."""


class ServiceSpec(ApiModel):
    """The Service in front of the replicas; it has the backend's name."""

    port: Annotated[int, Field(ge=1, le=65535)] = 80
    """Port of the Service. Default: 80."""


_GPUS = (
    f"self.resources.limits.filter(r, r.matches({cel_text(GPU_RESOURCE_PATTERN)}) && "
    "quantity(string(self.resources.limits[r])).isGreaterThan(quantity('0')))"
)
_RANKS = "self.engine.vllm.pipelineParallelSize * self.engine.vllm.dataParallelSize"
_GPU_COUNT_CEL = (
    "!has(self.engine.vllm) || !has(self.resources) || !has(self.resources.limits) || "
    f"{_GPUS}.all(r, quantity(string(self.resources.limits[r])).isInteger() && "
    "(has(self.engine.vllm.tensorParallelSize) "
    f"? quantity(string(self.resources.limits[r])).asInteger() == self.engine.vllm.tensorParallelSize * {_RANKS} "
    f": quantity(string(self.resources.limits[r])).asInteger() % ({_RANKS}) == 0))"
)


def _gpus_match(spec: LLMBackendSpec) -> bool:
    tuning = spec.engine.vllm
    if tuning is None:
        return True
    ranks = tuning.pipeline_parallel_size * tuning.data_parallel_size
    if tuning.tensor_parallel_size is None:
        return all(count % ranks == 0 for count in spec.resources.gpus().values())
    return all(count == tuning.tensor_parallel_size * ranks for count in spec.resources.gpus().values())


def _names_a_file(spec: LLMBackendSpec) -> bool:
    sources = (spec.model.source.persistent_volume_claim, spec.model.source.baked)
    return not any(source.path.endswith("/") for source in sources if source is not None)


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

    limiter: LimiterSpec = LimiterSpec()
    """The limiter, the sidecar that every request passes."""

    drain: DrainSpec = DrainSpec()
    """How a replica leaves without cutting a request."""

    health: HealthSpec = HealthSpec()
    """How long the engine may take."""

    service: ServiceSpec = ServiceSpec()
    """The Service in front of the replicas."""

    rules = (
        Rule(
            cel=_GPU_COUNT_CEL,
            message=(
                "the GPUs in `resources.limits` must equal tensorParallelSize × pipelineParallelSize × "
                "dataParallelSize; leave tensorParallelSize out to let Penstock choose it"
            ),
            holds=_gpus_match,
        ),
        Rule(
            cel=(
                "self.engine.type != 'LlamaCpp' || ("
                "(!has(self.model.source.persistentVolumeClaim) || "
                "!self.model.source.persistentVolumeClaim.path.endsWith('/')) && "
                "(!has(self.model.source.baked) || !self.model.source.baked.path.endsWith('/')))"
            ),
            message="llama.cpp needs the path of a GGUF file, such as `/models/model.gguf`",
            holds=lambda spec: spec.engine.type is not EngineType.LLAMA_CPP or _names_a_file(spec),
            field="model.source",
        ),
    )


class LLMBackendStatus(ApiModel):
    """What Penstock observes; users never write it."""

    observed_generation: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})] | None = None
    """Generation of the spec that this status speaks about."""

    conditions: Annotated[tuple[Condition, ...], Field(max_length=16), ListMap("type")] = ()
    """`Ready` and `Available`; `Reconciling` and `Stalled` while they are True."""

    replicas: Annotated[int, Field(ge=0)] | None = None
    """Pods that exist."""

    ready_replicas: Annotated[int, Field(ge=0)] | None = None
    """Pods that are ready."""

    updated_replicas: Annotated[int, Field(ge=0)] | None = None
    """Pods that run the current spec."""

    selector: Annotated[str, Field(max_length=1024)] | None = None
    """Label selector of the pods, for autoscalers."""

    url: Annotated[str, Field(max_length=1024)] | None = None
    """Where clients in the cluster send requests."""

    engine_version: Annotated[str, Field(max_length=64)] | None = None
    """The engine's version as far as known."""


class Metadata(ApiModel):
    """The part of an object's metadata that Penstock reads."""

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    deletion_timestamp: str | None = None


class LLMBackend(ApiModel):
    """A model served by replicas of one engine behind Penstock's limiter."""

    api_version: str = API_VERSION
    kind: Literal["LLMBackend"] = "LLMBackend"
    metadata: Metadata
    spec: LLMBackendSpec
    status: LLMBackendStatus = LLMBackendStatus()

    rules = (
        Rule(
            cel=f"self.metadata.name.matches({cel_text(NAME_PATTERN)})",
            message=f"{_NAME_MESSAGE}, such as qwen2-5-7b",
            message_expression=_NAME_SUGGESTION,
            holds=lambda backend: re.fullmatch(NAME_PATTERN, backend.metadata.name) is not None,
        ),
    )

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> LLMBackend:
        """Read an object as the API server sends it: as strict about types as its schema.

        Raises:
            InvalidBackend: a value breaks a constraint; names every field and what to write instead.
        """
        try:
            return cls.model_validate_json(json.dumps(body), strict=True)
        except ValidationError as error:
            raise InvalidBackend(_problems(error)) from None


def _problems(error: ValidationError) -> list[Problem]:
    problems = []
    for entry in error.errors(include_url=False):
        steps = (*entry["loc"], *filter(None, (entry.get("ctx", {}).get("field"),)))
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
        problems.append(Problem(field=path.removeprefix("."), message=entry["msg"].removeprefix("Value error, ")))
    return problems
