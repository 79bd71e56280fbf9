"""Every object of `tests/api/invalid.py` on a real API server: refused there in words that help, or stored and Stalled.

Rules in CEL run only there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.api.invalid import REFUSED, STALLED, Invalid

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("installed")]


def create(api: Any, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return status and answer of creating an object that is not stored."""
    answer = api.request("POST", api.path("LLMBackend", "default"), json=body, params={"dryRun": "All"})
    return answer.status_code, answer.json()


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_the_api_server_refuses_it_with_its_field_and_a_way_out(api: Any, case: Invalid) -> None:
    status, answer = create(api, case.body)
    assert status == 422, answer
    causes = [(cause["field"], cause["message"]) for cause in answer["details"]["causes"]]
    assert any(field == case.field and case.words in message for field, message in causes), causes


def test_the_operator_finds_what_the_api_server_cannot_see_and_makes_nothing_of_it(
    api: Any, operator: Any, namespace: str, wait_for: Callable[..., Any]
) -> None:
    for index, case in enumerate(STALLED):
        api.create({**case.body, "metadata": {"name": f"wrong-{index}", "namespace": namespace}})

    def stalled(index: int) -> dict[str, Any] | None:
        conditions = api.get("LLMBackend", namespace, f"wrong-{index}").get("status", {}).get("conditions", [])
        return next((entry for entry in conditions if entry["type"] == "Stalled"), None)

    for index, case in enumerate(STALLED):
        condition = wait_for(lambda index=index: stalled(index), f"Stalled condition for {case.name}")
        assert condition["reason"] == "InvalidSpec", case.name
        assert case.field in condition["message"], case.name
        assert case.words in condition["message"], case.name
    assert api.list("Deployment", namespace) == []
    assert api.list("Service", namespace) == []
    assert "Traceback" not in operator.text()
