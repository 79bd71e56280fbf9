"""Owned arguments are found however they are spelled."""

from __future__ import annotations

import argparse
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.engine import OWNED_BY_BOTH_ENGINES, EngineType
from penstock.api.kubernetes import EnvVar
from penstock.engines import llamacpp, vllm_owned
from penstock.engines.base import Engine
from penstock.engines.engine import for_type

VLLM = for_type(EngineType.VLLM)
LLAMA_CPP = for_type(EngineType.LLAMA_CPP)
VLLM_FLAGS = [flag for entry in vllm_owned.OWNED for flag in entry.flags]
LLAMA_CPP_FLAGS = [flag for entry in llamacpp.OWNED for flag in entry.flags]


@pytest.mark.parametrize(
    ("word", "instead"),
    [
        ("--host", "loopback only"),
        ("--host=0.0.0.0", "loopback only"),
        ("--hos=0.0.0.0", "short for `--host`"),
        ("--ho", "short for `--host`"),
        ("--served_model_name", "spec.model.name"),
        ("--served-model_name=x", "spec.model.name"),
        ("--served", "spec.model.name"),
        ("--max-model-le", "spec.engine.contextLength"),
        ("--max_num_seqs=3", "spec.engine.maxConcurrency"),
        ("-tp", "tensorParallelSize"),
        ("-tp=2", "tensorParallelSize"),
        ("-t", "short for `-tp`"),
        ("--no-enforce-eager", "enforceEager"),
        ("--no_enforce_eager", "enforceEager"),
        ("--api-key", "through the limiter only"),
        ("--api", "short for `--api-key`"),
        ("--config=/x.yaml", "spec.engine.args"),
        ("--config.x", "spec.engine.args"),
        ("--uds", "loopback only"),
        ("--ssl-keyfile", "loopback only"),
        ("--disable-log-stats", "metrics"),
        ("--shutdown-timeout", "spec.drain.timeoutSeconds"),
        ("--device-memory-utilization", "gpuMemoryUtilizationPercent"),
        ("--hf-token=hf_x", "tokenSecretRef"),
        ("-n2", "short for `-n`"),
        ("-r=0", "one replica is one pod"),
        ("-tp.x", "tensorParallelSize"),
        ("--served_model_name.x+", "spec.model.name"),
        ("--", "remove it"),
    ],
)
def test_vllm_arguments_that_penstock_owns_are_refused(word: str, instead: str) -> None:
    (problem,) = VLLM.check_args(["--seed", "7", word])
    assert problem.field == "spec.engine.args[2]"
    assert instead in problem.message


@pytest.mark.parametrize(
    "args",
    [
        ["--seed", "7"],
        ["--model-impl", "transformers"],
        ["--config-format", "hf"],
        ["--hf-overrides.rope_theta", "1"],
        ["--max-num-active-seqs", "4"],
        ["--trust-remote-code", "-O3", "-q", "awq"],
        ["--override-generation-config", '{"temperature": -1}'],
        ["--num-gpu-blocks-override", "-1", "-"],
        ["--disable-log-requests"],
        ["-ep", "-O2", "-cc.mode", "3", "-sc", "{}"],
        ["--no-enable-prefix-caching"],
    ],
)
def test_other_vllm_arguments_pass(args: list[str]) -> None:
    assert VLLM.check_args(args) == []


class Parser(argparse.ArgumentParser):
    """A parser that raises where it would end the process."""

    def error(self, message: str) -> NoReturn:
        raise argparse.ArgumentError(None, message)


@given(st.data())
def test_nothing_that_argparse_reads_as_an_owned_flag_passes(data: st.DataObject) -> None:
    """The real parser is the judge: it takes any unambiguous beginning of a flag, `=`, and values behind one letter."""
    parser = Parser(add_help=False)
    for flag in VLLM_FLAGS:
        parser.add_argument(flag, nargs="?", const="given")
    flag = data.draw(st.sampled_from(VLLM_FLAGS))
    length = data.draw(st.integers(2, len(flag)).filter(lambda length: flag[:length] != "--"))
    word = flag[:length] + data.draw(st.sampled_from(["", "=x", "2"]))
    try:
        read = parser.parse_args([word])
    except argparse.ArgumentError:
        return  # ambiguous: the engine does not start with it
    assert any(value is not None for value in vars(read).values())
    assert VLLM.check_args([word]), word


@pytest.mark.parametrize(
    ("word", "instead"),
    [
        ("--host", "loopback only"),
        ("--ctx_size", "spec.engine.contextLength"),
        ("-c", "spec.engine.contextLength"),
        ("-np", "spec.engine.maxConcurrency"),
        ("--kv-unified", "spec.engine.contextLength"),
        ("-kvu", "spec.engine.contextLength"),
        ("-m", "spec.model.source"),
        ("-hf", "spec.model.source"),
        ("--fim-qwen-1.5b-default", "a port of its own"),
        ("--embd_gemma_default", "a port of its own"),
        ("-a", "spec.model.name"),
        ("-t", "spec.engine.llamaCpp.threads"),
        ("-ngl", "spec.engine.llamaCpp.gpuLayers"),
        ("-fa", "spec.engine.llamaCpp.flashAttention"),
        ("--cache-ram", "spec.engine.llamaCpp.cacheRamMebibytes"),
        ("--api-key=x", "through the limiter only"),
        ("--slots", "remove it"),
        ("--no-metrics", None),
        ("--models-dir", "a backend for each model"),
        ("--tools", "run commands"),
        ("--slot_save_path", "remove it"),
        ("--alias", "spec.model.name"),
        ("--parallel", "spec.engine.maxConcurrency"),
        ("--n-gpu-layers", "spec.engine.llamaCpp.gpuLayers"),
        ("--gpu_layers", "spec.engine.llamaCpp.gpuLayers"),
        ("--hf-repo", "spec.model.source"),
        ("-hft", "tokenSecretRef"),
        ("--model-url", "spec.model.source"),
        ("-no-kvu", "spec.engine.contextLength"),
        ("--webui", "remove it"),
    ],
)
def test_llama_cpp_compares_whole_words(word: str, instead: str | None) -> None:
    problems = LLAMA_CPP.check_args(["--seed", "7", word])
    if instead is None:
        assert problems == []
    else:
        assert [problem.field for problem in problems] == ["spec.engine.args[2]"]
        assert instead in problems[0].message


@pytest.mark.parametrize(
    "args",
    [
        ["--hos", "0.0.0.0"],
        ["--threads-http", "8"],
        ["-tb", "4"],
        ["--jinja", "--embeddings", "--pooling", "mean"],
        ["-b", "512", "-ub", "128"],
        ["--lora", "/adapters/x.gguf"],
    ],
    ids=["beginnings mean nothing", "threads-http", "threads-batch", "embeddings", "batch", "lora"],
)
def test_other_llama_cpp_arguments_pass(args: list[str]) -> None:
    assert LLAMA_CPP.check_args(args) == []


@pytest.mark.parametrize("engine", [VLLM, LLAMA_CPP], ids=["vLLM", "llama.cpp"])
@pytest.mark.parametrize("word", ["$(A)", "$(A)--host", "--$(A)", "-$(A)", "--ho$(A)=0.0.0.0"])
def test_a_reference_that_kubelet_could_turn_into_a_flag_is_refused(engine: Engine, word: str) -> None:
    (problem,) = engine.check_args(["--seed", word])
    assert problem.field == "spec.engine.args[1]"
    assert "write the value itself" in problem.message


@pytest.mark.parametrize("engine", [VLLM, LLAMA_CPP], ids=["vLLM", "llama.cpp"])
@pytest.mark.parametrize("word", ["--chat-template=$(A)", "/templates/$(A)", "$$(A)", "$A"])
def test_a_reference_that_stays_a_value_passes(engine: Engine, word: str) -> None:
    assert engine.check_args(["--seed", word]) == []


@pytest.mark.parametrize("name", OWNED_BY_BOTH_ENGINES)
def test_what_the_api_server_refuses_is_refused_by_both_engines(name: str) -> None:
    assert VLLM.check_args([f"--{name}"])
    assert LLAMA_CPP.check_args([f"--{name}"])


@pytest.mark.parametrize("flags", [VLLM_FLAGS, LLAMA_CPP_FLAGS], ids=["vLLM", "llama.cpp"])
def test_no_flag_is_listed_twice(flags: list[str]) -> None:
    assert len(flags) == len(set(flags))


@pytest.mark.parametrize(
    ("engine_type", "name", "refused"),
    [
        (EngineType.VLLM, "VLLM_API_KEY", True),
        (EngineType.VLLM, "VLLM_SERVER_DEV_MODE", True),
        (EngineType.VLLM, "VLLM_PORT", True),
        (EngineType.VLLM, "VLLM_CPU_KVCACHE_SPACE", False),
        (EngineType.VLLM, "HF_HOME", False),
        (EngineType.LLAMA_CPP, "LLAMA_ARG_HOST", True),
        (EngineType.LLAMA_CPP, "LLAMA_API_KEY", True),
        (EngineType.LLAMA_CPP, "AIP_HTTP_PORT", True),
        (EngineType.LLAMA_CPP, "LLAMA_SERVER_SLOTS_DEBUG", True),
        (EngineType.LLAMA_CPP, "LLAMA_CACHE", False),
        (EngineType.VLLM, "VLLM_USE_RUST_FRONTEND", True),
        (EngineType.VLLM, "VLLM_ENGINE_READY_TIMEOUT_S", True),
        (EngineType.LLAMA_CPP, "CUDA_VISIBLE_DEVICES", False),
    ],
)
def test_variables_that_would_change_what_penstock_relies_on_are_refused(
    engine_type: EngineType, name: str, refused: bool
) -> None:
    problems = for_type(engine_type).check_env([EnvVar(name="OTHER", value="1"), EnvVar(name=name, value="1")])
    assert [problem.field for problem in problems] == (["spec.engine.env[1].name"] if refused else [])
