"""LLMBackend, the object users write: one model served by replicas of one engine behind Penstock's limiter."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ValidationError

from penstock.api.base import ApiModel, Rule, cel_text
from penstock.api.conditions import Condition
from penstock.api.engine import EngineSpec, EngineType, FlashAttention, LlamaCppSettings, VLLMSettings
from penstock.api.errors import InvalidBackend, Problem
from penstock.api.exposure import ServiceSpec
from penstock.api.kubernetes import EnvVar, Resources
from penstock.api.lifecycle import DrainSpec, HealthSpec
from penstock.api.limiter import LimiterSpec, LogLevel
from penstock.api.model import ModelSpec
from penstock.api.pod import PodSpec
from penstock.api.source import BakedSource, ModelSource, PersistentVolumeClaimSource
from penstock.api.spec import LLMBackendSpec
from penstock.api.status import LLMBackendStatus
from penstock.api.volumes import Volume, VolumeMount

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
    "the name in metadata becomes a Service's: at most 52 lower-case letters, digits and `-`, starting with a letter"
)
_NAME_SUGGESTION = (
    f"self.metadata.name.size() > 50 ? '' : {cel_text(_NAME_MESSAGE + '; write for example ')} + "
    "(self.metadata.name.matches('^[a-z]') ? '' : 'm-') + self.metadata.name.replace('.', '-')"
)
"""Empty for a name that is too long to be mended by itself; the rule's plain message is used then."""


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
            field="metadata.name",
        ),
        Rule(
            cel=(
                "!has(self.spec.resilience) || !has(self.spec.resilience.fallback) || "
                "!self.spec.resilience.fallback.exists(f, f.name == self.metadata.name)"
            ),
            message="a backend cannot be its own fallback; name another one",
            holds=lambda backend: backend.metadata.name not in {one.name for one in backend.spec.resilience.fallback},
            field="spec.resilience.fallback",
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
