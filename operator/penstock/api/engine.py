"""`spec.engine`: which engine runs, in which version, and how it is tuned."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from penstock.api.annotations import ListMap
from penstock.api.base import ApiModel, Rule, cel_text
from penstock.api.kubernetes import EnvVar, ImageReference

OWNED_BY_BOTH_ENGINES: Final = ("host", "port", "api-key", "model")
"""Flags that no engine may get from the user; the API server refuses them, the full list is in `penstock.engines`."""

_OWNED_ARGUMENT = rf"^--({'|'.join(OWNED_BY_BOTH_ENGINES)})(=.*)?$"
_OWNED_VARIABLE = "^(VLLM_API_KEY|VLLM_SERVER_DEV_MODE|LLAMA_API_KEY|LLAMA_ARG_.*)$"
_OWNED_MESSAGE = "Penstock sets this itself, because the engine is reached through the limiter only; remove it"

DEFAULT_SLOTS: Final = 4
"""Requests that llama.cpp works on at a time unless `maxConcurrency` says so."""

Argument = Annotated[str, Field(min_length=1, max_length=2048)]


class EngineType(StrEnum):
    """The engines Penstock can run."""

    VLLM = "VLLM"
    LLAMA_CPP = "LlamaCpp"


class FlashAttention(StrEnum):
    """llama.cpp's flash attention."""

    AUTO = "Auto"
    ENABLED = "Enabled"
    DISABLED = "Disabled"


class VLLMSettings(ApiModel):
    """How vLLM uses its accelerators; only for `type: VLLM`."""

    tensor_parallel_size: Annotated[int, Field(ge=1, le=64)] | None = None
    """GPUs that share every layer. Default: the GPUs in `resources` divided by the other two sizes, or 1."""

    pipeline_parallel_size: Annotated[int, Field(ge=1, le=64)] = 1
    """Groups of GPUs that each hold some of the layers. Default: 1."""

    data_parallel_size: Annotated[int, Field(ge=1, le=64)] = 1
    """Copies of the model inside one replica. Default: 1; prefer more replicas where the model fits."""

    gpu_memory_utilization_percent: Annotated[int, Field(ge=1, le=100)] | None = None
    """Share of each GPU's total memory that vLLM takes. Default: 90 when `resources` asks for a GPU."""

    max_num_batched_tokens: Annotated[int, Field(ge=64, le=1048576)] | None = None
    """Most tokens in one engine step. Default: vLLM's own choice for the GPU."""

    enforce_eager: bool = False
    """Skip compilation and CUDA graphs: starts faster, serves slower. Default: false."""


class LlamaCppSettings(ApiModel):
    """How llama.cpp uses the machine; only for `type: LlamaCpp`."""

    gpu_layers: Annotated[int, Field(ge=0, le=9999)] | None = None
    """Layers kept on the GPU; 0 is CPU only. Default: llama.cpp's own choice."""

    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """CPU threads. Default: the CPU limit (else request) in `resources`, rounded up."""

    cache_ram_mebibytes: Annotated[int, Field(ge=0, le=1048576)] = 0
    """Host memory for the prompt cache in MiB, part of the memory limit. Default: 0 (off)."""

    flash_attention: FlashAttention = FlashAttention.AUTO
    """Flash attention: `Auto` (default), `Enabled` or `Disabled`."""


class EngineSpec(ApiModel):
    """The engine: its type, image, version and tuning."""

    type: EngineType
    """`VLLM` or `LlamaCpp`. It cannot be changed later: make a new backend instead."""

    image: ImageReference | None = None
    """Container image. Default: the official image that this release of Penstock pins."""

    version: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Version (`0.18.0`, `b11434`) of an image whose tag does not say; it decides which flags are passed."""

    args: Annotated[tuple[Argument, ...], Field(max_length=64)] = ()
    """Further engine arguments, appended last. Those that Penstock sets itself are refused."""

    env: Annotated[tuple[EnvVar, ...], Field(max_length=64), ListMap("name")] = ()
    """Further environment variables of the engine. Those that Penstock sets itself are refused."""

    context_length: Annotated[int, Field(ge=64, le=16777216)] | None = None
    """Tokens one request may use, prompt and answer together. Default: 4096 for llama.cpp, the model's own for vLLM."""

    max_concurrency: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Requests one replica works on at the same time. Default: 4 for llama.cpp, vLLM's own choice for vLLM."""

    vllm: VLLMSettings | None = None
    """Settings of vLLM; only with `type: VLLM`."""

    llama_cpp: LlamaCppSettings | None = None
    """Settings of llama.cpp; only with `type: LlamaCpp`."""

    rules = (
        Rule(
            cel="self.type == oldSelf.type",
            message="the engine's type cannot be changed; make a new LLMBackend and delete this one",
            holds=None,
            field="type",
        ),
        Rule(
            cel="self.type == 'VLLM' || !has(self.vllm)",
            message="the block `vllm` belongs to `type: VLLM`; for LlamaCpp write `llamaCpp`",
            holds=lambda engine: engine.type is EngineType.VLLM or engine.vllm is None,
            field="vllm",
        ),
        Rule(
            cel="self.type == 'LlamaCpp' || !has(self.llamaCpp)",
            message="the block `llamaCpp` belongs to `type: LlamaCpp`; for VLLM write `vllm`",
            holds=lambda engine: engine.type is EngineType.LLAMA_CPP or engine.llama_cpp is None,
            field="llamaCpp",
        ),
        Rule(
            cel=f"!has(self.args) || !self.args.exists(a, a.matches({cel_text(_OWNED_ARGUMENT)}))",
            message=f"--host, --port, --api-key and --model are refused: {_OWNED_MESSAGE}",
            message_expression=(
                f"'`' + self.args.filter(a, a.matches({cel_text(_OWNED_ARGUMENT)}))[0] + '`: ' + "
                f"{cel_text(_OWNED_MESSAGE)}"
            ),
            holds=lambda engine: not any(re.match(_OWNED_ARGUMENT, argument) for argument in engine.args),
            field="args",
        ),
        Rule(
            cel=f"!has(self.env) || !self.env.exists(e, e.name.matches({cel_text(_OWNED_VARIABLE)}))",
            message=f"VLLM_API_KEY, VLLM_SERVER_DEV_MODE, LLAMA_API_KEY and LLAMA_ARG_* are refused: {_OWNED_MESSAGE}",
            holds=lambda engine: not any(re.match(_OWNED_VARIABLE, variable.name) for variable in engine.env),
            field="env",
        ),
    )
