"""Versions are read where they are certain, and are unknown otherwise."""

from __future__ import annotations

import pytest

from penstock.api.engine import EngineType
from penstock.engines.engine import EngineVersion, for_type
from penstock.engines.version import at_least, split_image

VLLM = for_type(EngineType.VLLM)
LLAMA_CPP = for_type(EngineType.LLAMA_CPP)


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("vllm/vllm-openai:v0.18.0", (0, 18, 0)),
        ("vllm/vllm-openai:0.8.5", (0, 8, 5)),
        ("vllm/vllm-openai:v0.8.5.post1", (0, 8, 5)),
        ("vllm/vllm-openai:v0.10.2-x86_64", (0, 10, 2)),
        ("vllm/vllm-openai:v0.12", (0, 12, 0)),
        ("registry.example:5000/team/vllm-openai:v0.32.0@sha256:" + "0" * 64, (0, 32, 0)),
        ("rocm/vllm:rocm6.4_vllm_0.9.2", (0, 9, 2)),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai", None),
        ("vllm/vllm-openai:nightly", None),
        ("vllm/vllm-openai:v0.18.0rc1", None),
        ("vllm/vllm-openai:v0.18.0.dev3", None),
        ("vllm/vllm-openai@sha256:" + "0" * 64, None),
        ("localhost/fakevllm:0123456789ab", None),
        ("localhost/fakevllm:012345678901", None),
        ("registry.example/rhaiis/vllm-cuda-rhel9:3.2.1", None),
        ("registry.example/llm-d/llm-d-cuda:v0.3.0", None),
        ("registry.example:5000/vllm", None),
    ],
)
def test_a_vllm_image_tells_its_release(image: str, parts: tuple[int, ...] | None) -> None:
    version = VLLM.version(image, None)
    assert (version and version.parts) == parts


@pytest.mark.parametrize(
    ("image", "build"),
    [
        ("ghcr.io/ggml-org/llama.cpp:server-b11434", 11434),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda-b11434", 11434),
        ("ghcr.io/ggml-org/llama.cpp:b6000", 6000),
        ("ghcr.io/ggml-org/llama.cpp:server", None),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda13", None),
        ("localhost/llamacpp:b12345678901", None),
        ("localhost/llamacpp:0123456789ab", None),
        ("localhost:5000/llamacpp", None),
    ],
)
def test_a_llama_cpp_image_tells_its_build(image: str, build: int | None) -> None:
    version = LLAMA_CPP.version(image, None)
    assert (version and version.parts[0]) == build


@pytest.mark.parametrize(
    ("engine_type", "declared", "text"),
    [
        (EngineType.VLLM, "0.18.0", "0.18.0"),
        (EngineType.VLLM, "v0.18", "0.18.0"),
        (EngineType.VLLM, "0.32.0+cpu", "0.32.0"),
        (EngineType.VLLM, "1.0.0", "1.0.0"),
        (EngineType.VLLM, "latest", None),
        (EngineType.VLLM, "0.18.0rc1", None),
        (EngineType.LLAMA_CPP, "b11434", "b11434"),
        (EngineType.LLAMA_CPP, "11434", "b11434"),
        (EngineType.LLAMA_CPP, "1.0", None),
    ],
)
def test_a_declared_version_beats_the_tag(engine_type: EngineType, declared: str, text: str | None) -> None:
    """A vendor's tag may look like a release of the engine and be none."""
    version = for_type(engine_type).version("vllm/vllm-openai:v0.9.2-b5000", declared)
    assert (version and str(version)) == text


def test_versions_are_compared_by_number() -> None:
    assert EngineVersion((0, 10, 0)) > EngineVersion((0, 9, 2))
    assert at_least(EngineVersion((0, 16, 0)), 0, 16)
    assert not at_least(EngineVersion((0, 15, 9)), 0, 16)
    assert not at_least(None, 0, 8)


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("a", ("a", "")),
        ("a:b", ("a", "b")),
        ("host:5000/a", ("host:5000/a", "")),
        ("host:5000/a/b:c@sha256:0", ("host:5000/a/b", "c")),
    ],
)
def test_an_image_is_split_into_repository_and_tag(image: str, parts: tuple[str, str]) -> None:
    assert split_image(image) == parts
