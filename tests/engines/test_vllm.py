"""vLLM: command line by version, environment and pod shape."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.api.backend import EngineType, LLMBackend, LLMBackendSpec
from penstock.engines.engine import Aggregation, RequestClass, for_type
from penstock.engines.version import EngineVersion
from tests.api.examples import vllm

ENGINE = for_type(EngineType.VLLM)
BASE = ["/model/qwen", "--host", "127.0.0.1", "--port", "8001", "--served-model-name", "qwen"]
NO_ACCESS_LOG = ["--disable-access-log-for-endpoints", "/health,/metrics"]
QUIET = ["--disable-log-requests"]
ONE_SERVER = ["--api-server-count", "1"]
SHUTDOWN = ["--shutdown-timeout", "20"]


def spec(**parts: Any) -> LLMBackendSpec:
    """Return the spec of a small vLLM backend, with parts replaced."""
    return LLMBackend.parse(vllm(**parts)).spec


def args(version: str | None, **parts: Any) -> list[str]:
    """Return the arguments for a declared version."""
    wanted = spec(**parts)
    parsed = ENGINE.version("", version)
    return ENGINE.args(wanted, parsed, wanted.model.source.path_in_container)


@pytest.mark.parametrize(
    ("version", "gated"),
    [
        ("0.8.5", QUIET),
        ("0.9.2", QUIET),
        ("0.10.0", QUIET),
        ("0.10.2", []),
        ("0.11.0", []),
        ("0.12.0", []),
        ("0.13.0", []),
        ("0.15.0", ONE_SERVER),
        ("0.16.0", [*ONE_SERVER, *NO_ACCESS_LOG]),
        ("0.17.1", [*ONE_SERVER, *NO_ACCESS_LOG]),
        ("0.18.0", [*ONE_SERVER, *SHUTDOWN, *NO_ACCESS_LOG]),
        ("0.20.0", [*ONE_SERVER, *SHUTDOWN, *NO_ACCESS_LOG]),
        ("0.24.0", [*ONE_SERVER, *SHUTDOWN, *NO_ACCESS_LOG]),
        ("0.27.0", [*ONE_SERVER, *SHUTDOWN, *NO_ACCESS_LOG]),
        ("0.29.0", [*ONE_SERVER, *SHUTDOWN, *NO_ACCESS_LOG]),
        ("0.31.0", [*ONE_SERVER, *SHUTDOWN, *NO_ACCESS_LOG]),
        ("0.32.0", [*ONE_SERVER, *SHUTDOWN, *NO_ACCESS_LOG]),
        (None, []),
    ],
)
def test_each_version_gets_only_flags_it_knows(version: str | None, gated: list[str]) -> None:
    assert args(version) == BASE + gated


@pytest.mark.parametrize(
    ("parts", "added"),
    [
        ({"engine": {"contextLength": 8192}}, ["--max-model-len", "8192"]),
        ({"engine": {"maxConcurrency": 32}}, ["--max-num-seqs", "32"]),
        (
            {"engine": {"maxConcurrency": 33, "vllm": {"dataParallelSize": 2}}},
            ["--max-num-seqs", "17", "--data-parallel-size", "2"],
        ),
        ({"engine": {"vllm": {"tensorParallelSize": 2}}}, ["--tensor-parallel-size", "2"]),
        ({"engine": {"vllm": {"tensorParallelSize": 1}}}, []),
        ({"engine": {"vllm": {"gpuMemoryUtilizationPercent": 5}}}, ["--gpu-memory-utilization", "0.05"]),
        ({"engine": {"vllm": {"gpuMemoryUtilizationPercent": 100}}}, ["--gpu-memory-utilization", "1.00"]),
        ({"engine": {"vllm": {"maxNumBatchedTokens": 4096}}}, ["--max-num-batched-tokens", "4096"]),
        ({"engine": {"vllm": {"enforceEager": True}}}, ["--enforce-eager"]),
        ({"resources": {"limits": {"nvidia.com/gpu": 1}}}, ["--gpu-memory-utilization", "0.90"]),
        (
            {"resources": {"limits": {"nvidia.com/gpu": 4}}},
            ["--tensor-parallel-size", "4", "--gpu-memory-utilization", "0.90"],
        ),
        (
            {"resources": {"limits": {"nvidia.com/gpu": 4}}, "engine": {"vllm": {"pipelineParallelSize": 2}}},
            ["--tensor-parallel-size", "2", "--pipeline-parallel-size", "2", "--gpu-memory-utilization", "0.90"],
        ),
        ({"resources": {"limits": {"memory": "4Gi"}}}, []),
        ({"args": ["--seed", "7", "--enable-lora"]}, ["--seed", "7", "--enable-lora"]),
    ],
    ids=[
        "context length",
        "concurrency",
        "concurrency is per replica, vLLM's is per rank",
        "tensor parallel",
        "one rank is vLLM's default",
        "little memory",
        "all memory",
        "batched tokens",
        "eager",
        "one GPU",
        "all GPUs are used",
        "GPUs left by pipeline parallel",
        "no GPU, no memory fraction",
        "the user's own last",
    ],
)
def test_each_field_becomes_its_flag(parts: dict[str, Any], added: list[str]) -> None:
    assert args("0.11.0", **parts) == BASE + added


def test_all_names_are_served_and_the_first_is_the_models_own() -> None:
    """vLLM labels its metrics with the first name."""
    model = {"name": "qwen", "aliases": ["Qwen/Qwen2.5-7B", "default"], "source": {"baked": {"path": "/m"}}}
    assert args("0.11.0", model=model) == [
        "/m",
        "--host",
        "127.0.0.1",
        "--port",
        "8001",
        "--served-model-name",
        "qwen",
        "Qwen/Qwen2.5-7B",
        "default",
    ]


def test_its_own_arguments_are_never_among_those_it_refuses_to_itself() -> None:
    """Every flag Penstock sets is one the user may not set."""
    everything = args("0.32.0", resources={"limits": {"nvidia.com/gpu": 4}}, engine={"contextLength": 100})
    flags = [word for word in everything if word.startswith("--")]
    assert [flag for flag in flags if not ENGINE.check_args([flag])] == []


def environment(**parts: Any) -> dict[str, str | None]:
    """Return the environment as a mapping; names may not repeat."""
    variables = ENGINE.environment(spec(**parts), None)
    assert len({variable.name for variable in variables}) == len(variables)
    return {variable.name: variable.value for variable in variables}


def test_the_engine_does_not_give_up_before_the_startup_probe() -> None:
    assert environment(health={"startupTimeoutSeconds": 3600})["VLLM_ENGINE_READY_TIMEOUT_S"] == "3660"


def test_a_user_id_without_a_name_has_one_and_all_caches_are_writable() -> None:
    found = environment()
    writable = tuple(directory.path for directory in ENGINE.writable_directories(spec()))
    assert found["USER"] == found["LOGNAME"] == "vllm"
    folders = [value for name, value in found.items() if name.endswith(("HOME", "ROOT", "DIR", "PATH")) and value]
    assert len(folders) > 8
    assert [folder for folder in folders if not folder.startswith(writable)] == []


def test_the_variable_that_only_looks_like_the_api_port_is_not_set() -> None:
    assert "VLLM_PORT" not in environment()


def test_a_users_variable_replaces_ours_and_stands_last() -> None:
    variables = ENGINE.environment(spec(engine={"env": [{"name": "HF_HOME", "value": "/cache"}]}), None)
    assert [(variable.name, variable.value) for variable in variables if variable.name == "HF_HOME"] == [
        ("HF_HOME", "/cache")
    ]
    assert variables[-1].name == "HF_HOME"


@pytest.mark.parametrize(
    ("parts", "mebibytes"),
    [
        ({}, 1024),
        ({"resources": {"limits": {"nvidia.com/gpu": 4}}}, 4096),
        ({"engine": {"vllm": {"tensorParallelSize": 2, "dataParallelSize": 2}}}, 4096),
        ({"pod": {"sharedMemoryMebibytes": 256}}, 256),
    ],
    ids=["one rank", "a rank per GPU", "given ranks", "given size"],
)
def test_shared_memory_is_large_enough_for_the_ranks(parts: dict[str, Any], mebibytes: int) -> None:
    (shared,) = (folder for folder in ENGINE.writable_directories(spec(**parts)) if folder.path == "/dev/shm")
    assert shared.memory
    assert shared.size_mebibytes == mebibytes


def test_both_spellings_of_the_kv_metric_are_read_and_ranks_are_not_added_up() -> None:
    metric = ENGINE.facts.metrics.kv_cache_used
    assert metric is not None
    assert metric.names == ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
    assert metric.aggregation is Aggregation.MAX
    assert ENGINE.facts.metrics.running.aggregation is Aggregation.SUM


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/chat/completions", RequestClass.GENERATION),
        ("/v1/messages/count_tokens", RequestClass.GENERATION),
        ("/tokenize", RequestClass.GENERATION),
        ("/v1/models", RequestClass.READ),
        ("/version", RequestClass.READ),
        ("/invocations", None),
        ("/metrics", None),
        ("/load", None),
        ("/sleep", None),
        ("/scale_elastic_ep", None),
        ("/v1/load_lora_adapter", None),
        ("/inference/v1/generate", None),
        ("/openapi.json", None),
    ],
)
def test_only_safe_paths_are_let_through(path: str, expected: RequestClass | None) -> None:
    assert ENGINE.facts.allowed_paths.get(path) == expected


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ({"version": "latest"}, "no vLLM release"),
        ({"version": "0.6.0"}, "0.8.5 or newer"),
        ({"image": "vllm/vllm-openai:v0.7.3"}, "0.8.5 or newer"),
    ],
)
def test_a_version_that_cannot_be_run_is_a_problem(engine: dict[str, str], words: str) -> None:
    (problem,) = ENGINE.check(spec(engine=engine))
    assert problem.field == "spec.engine.version"
    assert words in problem.message


def test_an_unknown_version_is_no_problem() -> None:
    assert ENGINE.check(spec(engine={"image": "registry.example/my-engine:7"})) == []


def test_the_default_image_is_one_whose_version_is_known() -> None:
    assert ENGINE.version_of(spec()) == EngineVersion((0, 32, 0))


def test_what_only_the_running_engine_knows_is_unknown() -> None:
    assert (ENGINE.concurrency(spec()), ENGINE.context_tokens(spec())) == (None, None)
    given = spec(engine={"maxConcurrency": 8, "contextLength": 100})
    assert (ENGINE.concurrency(given), ENGINE.context_tokens(given)) == (8, 100)


def test_stopping_takes_as_long_as_the_engine_is_told() -> None:
    assert args("0.32.0")[args("0.32.0").index("--shutdown-timeout") + 1] == str(ENGINE.stop_seconds(None))
