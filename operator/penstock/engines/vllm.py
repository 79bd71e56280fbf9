"""vLLM's `vllm serve`: command line by version, environment, paths, metrics, shutdown.

A flag the engine does not know stops its start, so each one that is newer than the oldest supported version stands
in `SINCE`. Environment variables need no such care: an older vLLM ignores one it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.api.backend import LLMBackendSpec
from penstock.api.engine import EngineType, VLLMSettings
from penstock.api.errors import Problem
from penstock.api.kubernetes import EnvVar
from penstock.api.replica import ENGINE_PORT
from penstock.engines import arguments
from penstock.engines.base import SHARED_MEMORY_PATH, Engine, merged
from penstock.engines.facts import Aggregation, EngineFacts, MetricName, MetricNames, WritableDirectory, paths
from penstock.engines.version import EngineVersion, at_least, parse_vllm, vllm_of_image
from penstock.engines.vllm_owned import OWNED, OWNED_ENVIRONMENT

IMAGE = "vllm/vllm-openai"
RELEASE = "0.32.0"

OLDEST_RELEASE = (0, 8, 5)
SINCE: Final = {
    # Until 0.14 one API server is the default; from 0.15 there is one per data-parallel rank, and several do not drain.
    "--api-server-count": (0, 15),
    "--disable-access-log-for-endpoints": (0, 16),
    "--shutdown-timeout": (0, 18),
}
REQUEST_LOGGING_OFF = (0, 10, 1)
"""From here on prompts are not logged unless asked for; before, `--disable-log-requests` says so."""

SHUTDOWN_SECONDS = 20
READY_MARGIN_SECONDS = 60
DEFAULT_GPU_MEMORY_PERCENT = 90
SHARED_MEMORY_MEBIBYTES_PER_GPU = 1024
HOME = "/home/vllm"
CACHE = f"{HOME}/.cache"
TEMPORARY = "/tmp"  # noqa: S108 - an emptyDir of the pod

FACTS = EngineFacts(
    type=EngineType.VLLM,
    default_image=f"{IMAGE}:v{RELEASE}",
    default_concurrency=None,
    default_context_tokens=None,
    user_id=2000,
    group_id=2000,
    health_path="/health",
    metrics_path="/metrics",
    poll_interval_seconds=1.0,
    idle_connection_seconds=5.0,
    # Left out on purpose: /invocations (inference by another name), /load, /ping, adapters, scaling, profiling, sleep,
    # weight updates and all that a development server offers.
    reuse_after_stream=True,
    allowed_paths=paths(
        generation=(
            "/classify",
            "/detokenize",
            "/pooling",
            "/rerank",
            "/score",
            "/tokenize",
            "/v1/audio/transcriptions",
            "/v1/audio/translations",
            "/v1/chat/completions",
            "/v1/chat/completions/batch",
            "/v1/completions",
            "/v1/embeddings",
            "/v1/messages",
            "/v1/messages/count_tokens",
            "/v1/rerank",
            "/v1/responses",
            "/v1/score",
            "/v2/embed",
            "/v2/rerank",
        ),
        read=("/health", "/v1/models", "/version"),
    ),
    metrics=MetricNames(
        running=MetricName(names=("vllm:num_requests_running",), aggregation=Aggregation.SUM),
        waiting=MetricName(names=("vllm:num_requests_waiting",), aggregation=Aggregation.SUM),
        kv_cache_used=MetricName(
            names=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"), aggregation=Aggregation.MAX
        ),
        progress=MetricName(names=("vllm:iteration_tokens_total_count",), aggregation=Aggregation.SUM),
        prompt_tokens=MetricName(names=("vllm:prompt_tokens_total",), aggregation=Aggregation.SUM),
        generated_tokens=MetricName(names=("vllm:generation_tokens_total",), aggregation=Aggregation.SUM),
    ),
    share_process_namespace=False,
)


class VLLM(Engine):
    """vLLM's OpenAI-compatible server."""

    facts = FACTS

    def version(self, image: str, declared: str | None) -> EngineVersion | None:
        """Return the release: the declared one, else what the tag of a vLLM image says; None when unknown."""
        return parse_vllm(declared) if declared else vllm_of_image(image)

    def command(self) -> list[str] | None:
        """Return the executable and its subcommand, so that images with any entry point work."""
        return ["vllm", "serve"]

    def args(self, spec: LLMBackendSpec, version: EngineVersion | None, model_path: str) -> list[str]:
        """Return the arguments, the user's own last."""
        engine, tuning = spec.engine, spec.engine.vllm or VLLMSettings()
        ranks = tuning.data_parallel_size
        args = [model_path, "--host", "127.0.0.1", "--port", str(ENGINE_PORT)]
        args += ["--served-model-name", *spec.model.served_names]
        values: dict[str, int | str | None] = {
            "--max-model-len": engine.context_length,
            # vLLM counts per data-parallel rank, the spec counts per replica.
            "--max-num-seqs": engine.max_concurrency and -(-engine.max_concurrency // ranks),
            "--tensor-parallel-size": _not_one(tensor_parallel_size(spec)),
            "--pipeline-parallel-size": _not_one(tuning.pipeline_parallel_size),
            "--data-parallel-size": _not_one(ranks),
            "--gpu-memory-utilization": _memory_fraction(spec),
            "--max-num-batched-tokens": tuning.max_num_batched_tokens,
            "--api-server-count": 1,
            "--shutdown-timeout": SHUTDOWN_SECONDS,
            "--disable-access-log-for-endpoints": "/health,/metrics",
        }
        for flag, value in values.items():
            if value is not None and (flag not in SINCE or at_least(version, *SINCE[flag])):
                args += [flag, str(value)]
        if tuning.enforce_eager:
            args.append("--enforce-eager")
        if version is not None and not version.at_least(*REQUEST_LOGGING_OFF):
            args.append("--disable-log-requests")
        return [*args, *engine.args]

    def environment(self, spec: LLMBackendSpec, version: EngineVersion | None) -> list[EnvVar]:  # noqa: ARG002
        """Return the environment; the same for every version."""
        own = {
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_DO_NOT_TRACK": "1",
            # vLLM gives up loading on its own after this; the startup probe is the one to decide.
            "VLLM_ENGINE_READY_TIMEOUT_S": str(spec.startup_seconds + READY_MARGIN_SECONDS),
            # A user id without an entry in /etc/passwd has neither a name nor a home.
            "HOME": HOME,
            "USER": "vllm",
            "LOGNAME": "vllm",
            "XDG_CACHE_HOME": CACHE,
            "XDG_CONFIG_HOME": f"{HOME}/.config",
            "HF_HOME": f"{CACHE}/huggingface",
            # The model lies in the pod before vLLM starts: a hub that is slow or away may not hold it up.
            "HF_HUB_OFFLINE": "1",
            "VLLM_CACHE_ROOT": f"{CACHE}/vllm",
            "VLLM_CONFIG_ROOT": f"{HOME}/.config/vllm",
            "VLLM_RPC_BASE_PATH": TEMPORARY,
            "TORCHINDUCTOR_CACHE_DIR": f"{CACHE}/torchinductor",
            "TRITON_CACHE_DIR": f"{CACHE}/triton",
            "NUMBA_CACHE_DIR": f"{CACHE}/numba",
            "MPLCONFIGDIR": f"{CACHE}/matplotlib",
        }
        return merged(own, spec.engine.env)

    def check_args(self, args: Sequence[str]) -> list[Problem]:
        """Return the arguments that Penstock sets itself."""
        return arguments.argparse_problems(args, OWNED)

    def check_env(self, env: Sequence[EnvVar]) -> list[Problem]:
        """Return the variables that Penstock sets itself, or that would open the engine."""
        return arguments.environment_problems(env, names=OWNED_ENVIRONMENT, prefixes={})

    def check_version(self, spec: LLMBackendSpec) -> list[Problem]:
        """Return a declared version that is no release, or a release that is too old."""
        version = self.version_of(spec)
        if spec.engine.version and version is None:
            return [Problem("spec.engine.version", f"`{spec.engine.version}` is no vLLM release; write `{RELEASE}`")]
        if version is not None and not version.at_least(*OLDEST_RELEASE):
            oldest = EngineVersion(OLDEST_RELEASE)
            return [Problem("spec.engine.version", f"vLLM {version} is too old; use {oldest} or newer")]
        return []

    def writable_directories(self, spec: LLMBackendSpec) -> list[WritableDirectory]:
        """Return home (all caches are below it), /tmp, and a /dev/shm that the ranks can talk through."""
        tuning = spec.engine.vllm or VLLMSettings()
        ranks = (tensor_parallel_size(spec) or 1) * tuning.pipeline_parallel_size * tuning.data_parallel_size
        size = spec.pod.shared_memory_mebibytes or SHARED_MEMORY_MEBIBYTES_PER_GPU * ranks
        return [
            WritableDirectory(name="home", path=HOME),
            WritableDirectory(name="tmp", path=TEMPORARY),
            WritableDirectory(name="shared-memory", path=SHARED_MEMORY_PATH, memory=True, size_mebibytes=size),
        ]

    def stop_seconds(self, version: EngineVersion | None) -> int:  # noqa: ARG002
        """Return 20: `--shutdown-timeout` where there is one, and the time to take the workers down elsewhere."""
        return SHUTDOWN_SECONDS


def tensor_parallel_size(spec: LLMBackendSpec) -> int | None:
    """Return the given size, else the GPUs left by the other two sizes; None when no GPU is asked for."""
    tuning = spec.engine.vllm or VLLMSettings()
    if tuning.tensor_parallel_size is not None:
        return tuning.tensor_parallel_size
    gpus = sum(spec.resources.gpus().values())
    return int(gpus) // (tuning.pipeline_parallel_size * tuning.data_parallel_size) or None


def _memory_fraction(spec: LLMBackendSpec) -> str | None:
    tuning = spec.engine.vllm or VLLMSettings()
    percent = tuning.gpu_memory_utilization_percent
    if percent is None:
        # Without a GPU, vLLM's CPU build reads the flag as a share of the node's memory.
        percent = DEFAULT_GPU_MEMORY_PERCENT if spec.resources.gpus() else None
    return None if percent is None else f"{percent / 100:.2f}"


def _not_one(size: int | None) -> int | None:
    return None if size == 1 else size
