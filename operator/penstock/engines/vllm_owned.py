"""vLLM's arguments and variables that Penstock sets itself, and what to write instead. Data only."""

from __future__ import annotations

from typing import Final

from penstock.engines.arguments import Owned

_NETWORK = "the engine listens on loopback only, and clients reach it through the limiter; remove it"
_PARALLEL = "one replica is one pod; set the sizes in `spec.engine.vllm` and remove it"
_CODE = "it puts code in front of the engine's API; build it into the image and remove it"

OWNED: Final = (
    Owned(flags=("--host", "--port", "--uds", "--root-path", "--grpc", "--grpc-port"), instead=_NETWORK),
    Owned(
        flags=(
            "--ssl-keyfile",
            "--ssl-certfile",
            "--ssl-ca-certs",
            "--ssl-cert-reqs",
            "--ssl-ciphers",
            "--enable-ssl-refresh",
        ),
        instead=_NETWORK,
    ),
    Owned(flags=("--api-key",), instead="the engine is reached through the limiter only; remove it"),
    Owned(flags=("--config",), instead="a file could change any of them; write its entries as `spec.engine.args`"),
    Owned(flags=("--model",), instead="set `spec.model.source`"),
    Owned(flags=("--hf-token",), instead="set `spec.model.source.huggingFace.tokenSecretRef`; arguments are no secret"),
    Owned(flags=("--served-model-name",), instead="set `spec.model.name` and `spec.model.aliases`"),
    Owned(flags=("--max-model-len",), instead="set `spec.engine.contextLength`"),
    Owned(flags=("--max-num-seqs",), instead="set `spec.engine.maxConcurrency`"),
    Owned(flags=("--tensor-parallel-size", "-tp"), instead="set `spec.engine.vllm.tensorParallelSize`"),
    Owned(flags=("--pipeline-parallel-size", "-pp"), instead="set `spec.engine.vllm.pipelineParallelSize`"),
    Owned(flags=("--data-parallel-size", "-dp"), instead="set `spec.engine.vllm.dataParallelSize`"),
    Owned(
        flags=(
            "--data-parallel-rank",
            "-dpn",
            "--data-parallel-start-rank",
            "-dpr",
            "--data-parallel-size-local",
            "-dpl",
            "--data-parallel-address",
            "-dpa",
            "--data-parallel-rpc-port",
            "-dpp",
            "--data-parallel-external-lb",
            "-dpe",
            "--data-parallel-hybrid-lb",
            "-dph",
            "--data-parallel-multi-port-external-lb",
            "-dpm",
            "--data-parallel-supervisor-port",
            "--headless",
            "--nnodes",
            "-n",
            "--node-rank",
            "-r",
        ),
        instead=_PARALLEL,
    ),
    Owned(
        flags=("--gpu-memory-utilization", "--device-memory-utilization"),
        instead="set `spec.engine.vllm.gpuMemoryUtilizationPercent`",
    ),
    Owned(flags=("--max-num-batched-tokens",), instead="set `spec.engine.vllm.maxNumBatchedTokens`"),
    Owned(flags=("--enforce-eager",), instead="set `spec.engine.vllm.enforceEager`"),
    Owned(flags=("--shutdown-timeout",), instead="set `spec.drain.timeoutSeconds`"),
    Owned(flags=("--api-server-count", "-asc"), instead="several API servers do not drain; remove it"),
    Owned(flags=("--disable-log-stats",), instead="it switches the engine's metrics off; remove it"),
    Owned(flags=("--disable-access-log-for-endpoints",), instead="the probes are kept out of the log; remove it"),
    Owned(flags=("--middleware",), instead=_CODE),
)

OWNED_ENVIRONMENT: Final = {
    "VLLM_API_KEY": "the engine is reached through the limiter only; remove it",
    "VLLM_SERVER_DEV_MODE": "it opens the engine's debugging interface; remove it",
    "VLLM_PORT": "it is no API port, and the engine's ports are fixed; remove it",
    "VLLM_USE_RUST_FRONTEND": "this front end is not supported; remove it",
    "VLLM_ENGINE_READY_TIMEOUT_S": "set `spec.health.startupTimeoutSeconds`",
    "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "the limiter relies on the engine's own value; remove it",
    "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "a dead engine must end so that it is restarted; remove it",
    "PROMETHEUS_MULTIPROC_DIR": "stale files in it would come back as metrics; remove it",
}
