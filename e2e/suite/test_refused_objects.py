"""A wrong object is refused by the API server, with a sentence that says what to write instead."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

GOOD: dict[str, Any] = {
    "engine": {"type": "LlamaCpp"},
    "model": {"name": "m", "source": {"baked": {"path": "/models/m.gguf"}}},
}

WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "a name that is no Service name": ("qwen2.5-7b", GOOD, "qwen2-5-7b"),
    "two sources": (
        "two",
        GOOD
        | {
            "model": {
                "name": "m",
                "source": {"baked": {"path": "/m"}, "persistentVolumeClaim": {"claimName": "c", "path": "m"}},
            }
        },
        "exactly one",
    ),
    "no source": ("none", GOOD | {"model": {"name": "m", "source": {}}}, "exactly one"),
    "an engine nobody knows": ("engine", GOOD | {"engine": {"type": "Ollama"}}, "LlamaCpp"),
    "the other engine's block": ("block", GOOD | {"engine": {"type": "LlamaCpp", "vllm": {}}}, "llamaCpp"),
    "no model": ("model", {"engine": {"type": "VLLM"}}, "model"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_object_is_refused_with_help(kubectl: Callable[..., Any], case: str) -> None:
    """What kubectl shows is the rule's own sentence, which names what to write."""
    name, spec, sentence = WRONG[case]
    manifest = {
        "apiVersion": "serving.penstock.dev/v1alpha1",
        "kind": "LLMBackend",
        "metadata": {"name": name},
        "spec": spec,
    }
    done = kubectl("apply", "-f", "-", stdin=json.dumps(manifest), check=False)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert kubectl("get", "llmb", name, "--ignore-not-found", "-o", "name").stdout == ""
