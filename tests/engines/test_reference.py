"""The reference page of the engines tells what is refused and what is let through."""

from __future__ import annotations

import pytest

from penstock.engines import llamacpp, vllm_owned
from penstock.engines.engine import ENGINES, Engine
from penstock.engines.reference import page

PAGE = page()


@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
def test_images_and_paths_are_told(engine: Engine) -> None:
    assert engine.facts.default_image in PAGE
    assert [path for path in engine.facts.allowed_paths if f"`{path}`" not in PAGE] == []


def test_everything_refused_is_told_with_its_way_out() -> None:
    for entry in (*vllm_owned.OWNED, *llamacpp.OWNED):
        assert f"{' '.join(f'`{flag}`' for flag in entry.flags)} | {entry.instead} |" in PAGE
    for name in (*vllm_owned.OWNED_ENVIRONMENT, *llamacpp.OWNED_ENVIRONMENT, "LLAMA_ARG_*"):
        assert f"| `{name}` |" in PAGE
