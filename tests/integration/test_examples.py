"""What stands in examples/ is taken by a real API server, unknown fields and all rules checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("installed")]

FILES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.yaml"))
COLLECTIONS = {
    "LLMBackend": "/apis/serving.penstock.dev/v1alpha1/namespaces/default/llmbackends",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_can_be_applied_as_it_is(api: Any, path: Path) -> None:
    for obj in yaml.safe_load_all(path.read_text()):
        answer = api.request(
            "PATCH",
            f"{COLLECTIONS[obj['kind']]}/{obj['metadata']['name']}",
            params={"dryRun": "All", "fieldManager": "kubectl", "fieldValidation": "Strict"},
            headers={"Content-Type": "application/apply-patch+yaml"},
            data=yaml.safe_dump(obj),
        )
        assert answer.ok, answer.text
