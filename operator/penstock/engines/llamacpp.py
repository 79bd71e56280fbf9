"""llama.cpp's `llama-server`: command line by build, paths, metrics, shutdown.

Slots and context: `-c` is the total over all slots, so it is slots × context length, and the slots are named (`-np`),
which keeps the KV cache split. A cache shared by all slots ends every stream at once when it runs full.
Where builds differ, an environment variable is used instead of a flag: a build that does not know a variable ignores
it, while an unknown flag stops the start.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from penstock.api.backend import LLMBackendSpec
from penstock.api.engine import DEFAULT_SLOTS, EngineType, FlashAttention, LlamaCppSettings
from penstock.api.errors import Problem
from penstock.api.kubernetes import EnvVar
from penstock.api.replica import ENGINE_PORT
from penstock.engines import arguments
from penstock.engines.arguments import Owned
from penstock.engines.base import SHARED_MEMORY_PATH, Engine, merged
from penstock.engines.facts import Aggregation, EngineFacts, MetricName, MetricNames, WritableDirectory, paths
from penstock.engines.version import EngineVersion, at_least, llama_cpp_of_image, parse_llama_cpp

IMAGE = "ghcr.io/ggml-org/llama.cpp"
BUILD = "b11434"

OLDEST_BUILD = 5000
NO_UI_BUILD = 10964
"""The web interface's flag is `--no-ui` here; older builds call it `--no-webui`."""

DEFAULT_CONTEXT_TOKENS = 4096
CPU_BATCH_TOKENS = 512
"""What the server works off before it looks at anything else, a client that left included; four times that by default,
which is many seconds of a CPU. It computes no more than this at once anyway, so a smaller batch costs nothing."""

PHYSICAL_BATCH_FLAGS: Final = frozenset({"-ub", "--ubatch-size"})
"""Who sets what is computed at once, for inputs of an embedding that must fit into it, wants no less than that."""

STOP_SECONDS = 5
HOME = "/tmp"  # noqa: S108 - an emptyDir of the pod

FACTS = EngineFacts(
    type=EngineType.LLAMA_CPP,
    default_image=f"{IMAGE}:server-{BUILD}",
    gpu_images={
        "nvidia.com": f"{IMAGE}:server-cuda-{BUILD}",
        "amd.com": f"{IMAGE}:server-rocm-{BUILD}",
        "gpu.intel.com": f"{IMAGE}:server-intel-{BUILD}",
    },
    default_concurrency=DEFAULT_SLOTS,
    default_context_tokens=DEFAULT_CONTEXT_TOKENS,
    user_id=2000,
    group_id=2000,
    health_path="/health",
    metrics_path="/metrics",
    # Reading more often than this keeps the server from noticing clients that have left.
    poll_interval_seconds=2.0,
    idle_connection_seconds=5.0,
    reuse_after_stream=False,  # it closes the connection, whatever its Keep-Alive header says
    allowed_paths=paths(
        generation=(
            "/apply-template",
            "/chat/completions",
            "/completion",
            "/completions",
            "/detokenize",
            "/embedding",
            "/embeddings",
            "/infill",
            "/rerank",
            "/reranking",
            "/responses",
            "/tokenize",
            "/v1/audio/transcriptions",
            "/v1/chat/completions",
            "/v1/chat/completions/input_tokens",
            "/v1/completions",
            "/v1/embeddings",
            "/v1/messages",
            "/v1/messages/count_tokens",
            "/v1/rerank",
            "/v1/reranking",
            "/v1/responses",
            "/v1/responses/input_tokens",
        ),
        read=("/health", "/v1/health", "/models", "/v1/models"),
    ),
    metrics=MetricNames(
        running=MetricName(names=("llamacpp:requests_processing",), aggregation=Aggregation.SUM),
        waiting=MetricName(names=("llamacpp:requests_deferred",), aggregation=Aggregation.SUM),
        kv_cache_used=None,
        progress=MetricName(names=("llamacpp:n_decode_total",), aggregation=Aggregation.SUM),
        prompt_tokens=MetricName(names=("llamacpp:prompt_tokens_total",), aggregation=Aggregation.SUM),
        generated_tokens=MetricName(names=("llamacpp:tokens_predicted_total",), aggregation=Aggregation.SUM),
    ),
    # A server that is still loading has no handler for SIGTERM, and the kernel drops unhandled signals to PID 1.
    share_process_namespace=True,
)

_NETWORK = "the engine listens on loopback only, and clients reach it through the limiter; remove it"
_SOURCE = "set `spec.model.source`"
_HUB_TOKEN = "set `spec.model.source.huggingFace.tokenSecretRef`; arguments are no secret"  # noqa: S105 - advice
_NAMES = "set `spec.model.name` and `spec.model.aliases`"
_PRESET = "it brings a model and a port of its own; set `spec.model.source`"
_SLOTS = "set `spec.engine.maxConcurrency`"
_CONTEXT = "set `spec.engine.contextLength`"
_UNIFIED = "every slot keeps a cache of its own; set `spec.engine.contextLength`"
_METRICS = "Penstock reads the metrics and decides who may see slots; remove it"
_KEYS = "the engine is reached through the limiter only; remove it"
_ROUTER = "one backend serves one model; make a backend for each model and remove it"
_EXECUTION = "it lets clients run commands or reach the network from the pod; remove it"
_UI = "the web interface is off; remove it"

OWNED: Final = (
    Owned(flags=("--host", "--port", "--reuse-port", "--path", "--api-prefix"), instead=_NETWORK),
    Owned(flags=("--ssl-key-file", "--ssl-cert-file"), instead=_NETWORK),
    Owned(flags=("--api-key", "--api-key-file"), instead=_KEYS),
    Owned(flags=("-m", "--model", "-mu", "--model-url", "-dr", "--docker-repo"), instead=_SOURCE),
    Owned(flags=("-hf", "-hfr", "--hf-repo", "-hff", "--hf-file"), instead=_SOURCE),
    Owned(flags=("-hft", "--hf-token"), instead=_HUB_TOKEN),
    Owned(flags=tuple(f"--fim-qwen-{size}-default" for size in ("1.5b", "3b", "7b", "30b")), instead=_PRESET),
    Owned(flags=("--fim-qwen-7b-spec", "--fim-qwen-14b-spec"), instead=_PRESET),
    Owned(flags=("--gpt-oss-20b-default", "--gpt-oss-120b-default"), instead=_PRESET),
    Owned(flags=("--vision-gemma-4b-default", "--vision-gemma-12b-default"), instead=_PRESET),
    Owned(flags=("--embd-bge-small-en-default", "--embd-e5-small-en-default"), instead=_PRESET),
    Owned(flags=("--embd-gte-small-default", "--embd-gemma-default"), instead=_PRESET),
    Owned(flags=("-a", "--alias"), instead=_NAMES),
    Owned(flags=("-np", "--parallel"), instead=_SLOTS),
    Owned(flags=("-c", "--ctx-size"), instead=_CONTEXT),
    Owned(flags=("-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified", "--kv-unified-per-slot"), instead=_UNIFIED),
    Owned(flags=("-t", "--threads"), instead="set `spec.engine.llamaCpp.threads`"),
    Owned(flags=("-ngl", "--gpu-layers", "--n-gpu-layers"), instead="set `spec.engine.llamaCpp.gpuLayers`"),
    Owned(flags=("-fa", "--flash-attn"), instead="set `spec.engine.llamaCpp.flashAttention`"),
    Owned(flags=("-cram", "--cache-ram"), instead="set `spec.engine.llamaCpp.cacheRamMebibytes`"),
    Owned(flags=("--metrics", "--slots", "--no-slots", "--props", "--slot-save-path"), instead=_METRICS),
    Owned(flags=("--ui", "--webui", "--no-ui", "--no-webui"), instead=_UI),
    Owned(
        flags=("--ui-config", "--webui-config", "--ui-config-file", "--webui-config-file", "--ui-mcp-proxy"),
        instead=_UI,
    ),
    Owned(
        flags=("--models-dir", "--models-preset", "--models-max", "--models-autoload", "--no-models-autoload"),
        instead=_ROUTER,
    ),
    Owned(flags=("--sleep-idle-seconds",), instead="a sleeping engine would look stalled; remove it"),
    Owned(flags=("--webui-mcp-proxy", "--tools", "--tools-runtime", "-ag", "--agent"), instead=_EXECUTION),
    Owned(flags=("--mcp-servers-config", "--mcp-servers-json", "--rpc"), instead=_EXECUTION),
)

OWNED_ENVIRONMENT_PREFIXES: Final = {
    "LLAMA_ARG_": "it is another spelling of a flag; use the field or `spec.engine.args`",
    "LLAMA_SERVER_": "it is for the server's own processes and tests; remove it",
    "AIP_": "it would move the engine's port; remove it",
}
OWNED_ENVIRONMENT: Final = {"LLAMA_API_KEY": _KEYS}


class LlamaCpp(Engine):
    """llama.cpp's server."""

    facts = FACTS

    def version(self, image: str, declared: str | None) -> EngineVersion | None:
        """Return the build: the declared one, else the `bNNNN` in the image's tag; None when unknown."""
        return parse_llama_cpp(declared) if declared else llama_cpp_of_image(image)

    def command(self) -> list[str] | None:
        """Return None: the image's entry point is the server itself."""
        return None

    def args(self, spec: LLMBackendSpec, version: EngineVersion | None, model_path: str) -> list[str]:
        """Return the arguments, the user's own last."""
        engine, tuning = spec.engine, spec.engine.llama_cpp or LlamaCppSettings()
        slots = engine.max_concurrency or DEFAULT_SLOTS
        context = engine.context_length or DEFAULT_CONTEXT_TOKENS
        args = ["-m", model_path, "--host", "127.0.0.1", "--port", str(ENGINE_PORT)]
        # One name only: given several, newer builds answer with the alphabetically first. A server with one model takes
        # any name in a request, so the aliases need not be known to it.
        args += ["-a", spec.model.name, "-np", str(slots), "-c", str(slots * context)]
        args += ["--metrics", "--no-slots", "--no-ui" if at_least(version, NO_UI_BUILD) else "--no-webui"]
        threads = tuning.threads or _threads(spec)
        if threads is not None:
            args += ["-t", str(threads)]
        if tuning.gpu_layers is not None:
            args += ["-ngl", str(tuning.gpu_layers)]
        return [*args, *engine.args]

    def environment(self, spec: LLMBackendSpec, version: EngineVersion | None) -> list[EnvVar]:  # noqa: ARG002
        """Return the environment; the same for every build."""
        tuning = spec.engine.llama_cpp or LlamaCppSettings()
        own = {
            "HOME": HOME,
            # Off unless asked for: the built-in default of 8 GiB ends in an out-of-memory kill after hours.
            "LLAMA_ARG_CACHE_RAM": str(tuning.cache_ram_mebibytes),
        }
        if not spec.resources.gpus() and not PHYSICAL_BATCH_FLAGS.intersection(spec.engine.args):
            own["LLAMA_ARG_BATCH"] = str(CPU_BATCH_TOKENS)
        if tuning.flash_attention is not FlashAttention.AUTO:
            # As a flag, `-fa` is a switch in older builds and takes a value in newer ones.
            own["LLAMA_ARG_FLASH_ATTN"] = "1" if tuning.flash_attention is FlashAttention.ENABLED else "0"
        return merged(own, spec.engine.env)

    def check_args(self, args: Sequence[str]) -> list[Problem]:
        """Return the arguments that Penstock sets itself."""
        return arguments.exact_problems(args, OWNED)

    def check_env(self, env: Sequence[EnvVar]) -> list[Problem]:
        """Return the variables that are flags by another name."""
        return arguments.environment_problems(env, names=OWNED_ENVIRONMENT, prefixes=OWNED_ENVIRONMENT_PREFIXES)

    def check_version(self, spec: LLMBackendSpec) -> list[Problem]:
        """Return a declared version that is no build number, or a build that is too old."""
        version = self.version_of(spec)
        if spec.engine.version and version is None:
            return [Problem("spec.engine.version", f"`{spec.engine.version}` is no llama.cpp build; write `{BUILD}`")]
        if version is not None and not version.at_least(OLDEST_BUILD):
            return [
                Problem("spec.engine.version", f"llama.cpp {version} is too old; use b{OLDEST_BUILD} or newer"),
            ]
        return []

    def writable_directories(self, spec: LLMBackendSpec) -> list[WritableDirectory]:
        """Return /tmp, and /dev/shm when its size is given."""
        directories = [WritableDirectory(name="tmp", path="/tmp")]  # noqa: S108 - an emptyDir of the pod
        size = spec.pod.shared_memory_mebibytes
        if size is not None:
            directories.append(
                WritableDirectory(name="shared-memory", path=SHARED_MEMORY_PATH, memory=True, size_mebibytes=size)
            )
        return directories

    def stop_seconds(self, version: EngineVersion | None) -> int:  # noqa: ARG002
        """Return 5: an idle server ends in well under a second."""
        return STOP_SECONDS


def _threads(spec: LLMBackendSpec) -> int | None:
    """Return the CPU limit, else the request, rounded up; the server's own choice is every core of the node."""
    cpus = spec.resources.cpus()
    return None if cpus is None else max(1, math.ceil(cpus))
