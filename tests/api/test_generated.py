"""What is generated from the model; that all generated files are fresh is shown in tests/charts."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def test_no_anchors_are_written() -> None:
    """Not every reader of manifests knows them."""
    text = (REPOSITORY / "crds" / "llmbackends.yaml").read_text()
    assert "&id" not in text
    assert "*id" not in text
