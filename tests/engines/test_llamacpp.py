"""llama.cpp: command line by build, environment and pod shape."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.api.backend import EngineType, LLMBackend, LLMBackendSpec
from penstock.engines.engine import RequestClass, for_type
from tests.api.examples import backend

ENGINE = for_type(EngineType.LLAMA_CPP)
HEAD = ["-m", "/models/smollm2.gguf", "--host", "127.0.0.1", "--port", "8001", "-a", "smollm2-135m"]
TAIL = ["--metrics", "--no-slots", "--no-ui"]


def spec(*, engine: dict[str, Any] | None = None, **parts: Any) -> LLMBackendSpec:
    """Return the spec of the smallest backend, with parts replaced."""
    return LLMBackend.parse(backend(engine={"type": "LlamaCpp", **(engine or {})}, **parts)).spec


def mounted(path: str) -> dict[str, Any]:
    """Return the parts of a spec with a volume mounted at a path."""
    volume = {"name": "x", "emptyDir": {}}
    return {"pod": {"volumes": [volume], "volumeMounts": [{"name": "x", "mountPath": path}]}}


def args(build: str | None = "b11434", **parts: Any) -> list[str]:
    """Return the arguments for a declared build."""
    return ENGINE.args(spec(**parts), ENGINE.version("", build), "/models/smollm2.gguf")


@pytest.mark.parametrize(
    ("build", "web_interface"),
    [
        ("b5000", "--no-webui"),
        ("b10963", "--no-webui"),
        ("b10964", "--no-ui"),
        ("b11434", "--no-ui"),
        (None, "--no-webui"),
    ],
)
def test_each_build_gets_only_flags_it_knows(build: str | None, web_interface: str) -> None:
    expected = [*HEAD, "-np", "4", "-c", "16384", "--metrics", "--no-slots", web_interface]
    assert args(build) == expected


@pytest.mark.parametrize(
    ("engine", "slots", "context"),
    [
        ({}, 4, 4 * 4096),
        ({"maxConcurrency": 1}, 1, 4096),
        ({"maxConcurrency": 8, "contextLength": 2048}, 8, 8 * 2048),
        ({"contextLength": 8192}, 4, 4 * 8192),
    ],
    ids=["neither given", "slots given", "both given", "context given"],
)
def test_the_total_context_is_that_of_all_slots(engine: dict[str, int], slots: int, context: int) -> None:
    """llama.cpp divides the total by the slots, so each request gets the context length that was asked for."""
    assert args(engine=engine) == [*HEAD, "-np", str(slots), "-c", str(context), *TAIL]
    assert ENGINE.concurrency(spec(engine=engine)) == slots
    assert ENGINE.context_tokens(spec(engine=engine)) == context // slots


@pytest.mark.parametrize(
    ("parts", "threads"),
    [
        ({"resources": {"limits": {"cpu": "4"}}}, "4"),
        ({"resources": {"limits": {"cpu": "2500m"}}}, "3"),
        ({"resources": {"limits": {"cpu": "100m"}}}, "1"),
        ({"resources": {"requests": {"cpu": 2}}}, "2"),
        ({"resources": {"requests": {"cpu": 2}, "limits": {"cpu": 6}}}, "6"),
        ({"resources": {"limits": {"cpu": "4"}}, "engine": {"llamaCpp": {"threads": 7}}}, "7"),
        ({"resources": {"limits": {"memory": "4Gi"}}}, None),
    ],
)
def test_threads_follow_the_cpu_limit(parts: dict[str, Any], threads: str | None) -> None:
    """The server's own choice is every core of the node, which a limit then throttles."""
    given = args(**parts)
    assert (given[given.index("-t") + 1] if "-t" in given else None) == threads


@pytest.mark.parametrize(
    ("engine", "added"),
    [({"llamaCpp": {"gpuLayers": 0}}, ["-ngl", "0"]), ({"llamaCpp": {"gpuLayers": 99}}, ["-ngl", "99"])],
)
def test_gpu_layers_are_passed_when_given(engine: dict[str, Any], added: list[str]) -> None:
    assert args(engine=engine)[-2:] == added


def test_answers_carry_the_models_own_name() -> None:
    """Given several names, the server answers with the alphabetically first; it takes any name in a request."""
    model = {"name": "z", "aliases": ["a"], "source": {"baked": {"path": "/models/smollm2.gguf"}}}
    given = args(model=model)
    assert given[given.index("-a") + 1] == "z"


def test_the_users_arguments_come_last() -> None:
    assert args(engine={"args": ["--jinja", "-b", "512"]})[-3:] == ["--jinja", "-b", "512"]


def test_its_own_arguments_are_ones_the_user_may_not_set() -> None:
    everything = args(engine={"llamaCpp": {"gpuLayers": 1, "threads": 2}})
    flags = [word for word in everything if word.startswith("-")]
    assert [flag for flag in flags if not ENGINE.check_args([flag])] == []


@pytest.mark.parametrize(
    ("tuning", "expected"),
    [
        ({}, {"LLAMA_ARG_CACHE_RAM": "0"}),
        ({"cacheRamMebibytes": 512}, {"LLAMA_ARG_CACHE_RAM": "512"}),
        ({"flashAttention": "Auto"}, {"LLAMA_ARG_CACHE_RAM": "0"}),
        ({"flashAttention": "Enabled"}, {"LLAMA_ARG_CACHE_RAM": "0", "LLAMA_ARG_FLASH_ATTN": "1"}),
        ({"flashAttention": "Disabled"}, {"LLAMA_ARG_CACHE_RAM": "0", "LLAMA_ARG_FLASH_ATTN": "0"}),
    ],
)
def test_what_differs_between_builds_goes_by_environment(tuning: dict[str, Any], expected: dict[str, str]) -> None:
    """A build that does not know a variable ignores it; an unknown flag would stop the start."""
    variables = ENGINE.environment(spec(engine={"llamaCpp": tuning}), None)
    found = {variable.name: variable.value for variable in variables if variable.name.startswith("LLAMA_ARG_")}
    assert found == {"LLAMA_ARG_BATCH": "512"} | expected


@pytest.mark.parametrize(
    ("limits", "arguments", "batch"),
    [
        ({}, [], "512"),
        ({"cpu": "4"}, ["-b", "64"], "512"),
        ({"nvidia.com/gpu": 1}, [], None),
        ({"cpu": "4"}, ["--embeddings", "-ub", "2048"], None),
    ],
    ids=["no limit", "CPU, where an argument beats the variable", "GPU", "inputs must fit into a larger one"],
)
def test_a_cpu_works_in_batches_after_which_it_can_notice_that_a_client_left(
    limits: dict[str, Any], arguments: list[str], batch: str | None
) -> None:
    variables = ENGINE.environment(spec(resources={"limits": limits}, engine={"args": arguments}), None)
    assert {variable.name: variable.value for variable in variables}.get("LLAMA_ARG_BATCH") == batch


def test_the_image_is_run_as_it_is() -> None:
    """The official image's entry point is the server."""
    assert ENGINE.command() is None


@pytest.mark.parametrize(
    ("limits", "image"),
    [
        ({}, "ghcr.io/ggml-org/llama.cpp:server-b11434"),
        ({"nvidia.com/gpu": 1}, "ghcr.io/ggml-org/llama.cpp:server-cuda-b11434"),
        ({"nvidia.com/mig-1g.5gb": 1}, "ghcr.io/ggml-org/llama.cpp:server-cuda-b11434"),
        ({"amd.com/gpu": 1}, "ghcr.io/ggml-org/llama.cpp:server-rocm-b11434"),
        ({"nvidia.com/gpu": 0}, "ghcr.io/ggml-org/llama.cpp:server-b11434"),
    ],
)
def test_the_default_image_fits_the_accelerator(limits: dict[str, int], image: str) -> None:
    assert ENGINE.image(spec(resources={"limits": limits})) == image
    assert str(ENGINE.version_of(spec(resources={"limits": limits}))) == "b11434"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/chat/completions", RequestClass.GENERATION),
        ("/completion", RequestClass.GENERATION),
        ("/infill", RequestClass.GENERATION),
        ("/v1/models", RequestClass.READ),
        ("/health", RequestClass.READ),
        ("/slots", None),
        ("/props", None),
        ("/metrics", None),
        ("/lora-adapters", None),
        ("/v1/stream", None),
        ("/cors-proxy", None),
        ("/tools", None),
        ("/models/load", None),
    ],
)
def test_only_safe_paths_are_let_through(path: str, expected: RequestClass | None) -> None:
    assert ENGINE.facts.allowed_paths.get(path) == expected


def test_the_server_is_not_read_so_often_that_it_misses_clients_that_left() -> None:
    assert ENGINE.facts.poll_interval_seconds >= 2


def test_a_loading_server_can_be_ended() -> None:
    """Before it has a handler, SIGTERM ends it only when it is not PID 1."""
    assert ENGINE.facts.share_process_namespace


@pytest.mark.parametrize(
    ("parts", "field", "words"),
    [
        ({"engine": {"version": "latest"}}, "spec.engine.version", "write `b11434`"),
        ({"engine": {"version": "b4000"}}, "spec.engine.version", "b5000 or newer"),
        (
            {
                "pod": {
                    "volumes": [{"name": "x", "emptyDir": {}}],
                    "volumeMounts": [{"name": "x", "mountPath": "/tmp/"}],
                }
            },
            "spec.pod.volumeMounts[0].mountPath",
            "mount below it",
        ),
        (
            {
                "pod": {
                    "volumes": [{"name": "x", "emptyDir": {}}],
                    "volumeMounts": [{"name": "x", "mountPath": "/dev/shm"}],
                }
            },
            "spec.pod.volumeMounts[0].mountPath",
            "sharedMemoryMebibytes",
        ),
        (
            {
                "pod": {
                    "volumes": [{"name": "x", "emptyDir": {}}],
                    "volumeMounts": [{"name": "x", "mountPath": "/model"}],
                }
            },
            "spec.pod.volumeMounts[0].mountPath",
            "the model is mounted there",
        ),
    ],
)
def test_what_the_api_server_cannot_see_is_a_problem(parts: dict[str, Any], field: str, words: str) -> None:
    (problem,) = ENGINE.check(spec(**parts))
    assert problem.field == field
    assert words in problem.message


def test_shared_memory_is_mounted_only_when_asked_for() -> None:
    assert [folder.path for folder in ENGINE.writable_directories(spec())] == ["/tmp"]
    (shared,) = ENGINE.writable_directories(spec(pod={"sharedMemoryMebibytes": 64}))[1:]
    assert (shared.path, shared.memory, shared.size_mebibytes) == ("/dev/shm", True, 64)
