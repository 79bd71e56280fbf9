"""What a real API server makes of valid LLMBackends: stored with the defaults that the model has.

What it refuses is in `test_invalid_objects.py`.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from penstock.api.backend import LLMBackend
from tests.api.complete import VALID
from tests.api.examples import CRD_SCHEMA, backend, defaulted, without_empty

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("installed")]


def create(api: Any, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return status and answer of creating an object that is not stored."""
    answer = api.request("POST", api.path("LLMBackend", "default"), json=body, params={"dryRun": "All"})
    return answer.status_code, answer.json()


@pytest.mark.parametrize("body", VALID.values(), ids=list(VALID))
def test_a_right_object_is_stored_with_the_defaults_that_the_model_has(api: Any, body: dict[str, Any]) -> None:
    status, answer = create(api, body)
    assert status == 201, answer
    stored = without_empty(as_text(answer["spec"]))
    assert stored == without_empty(defaulted(CRD_SCHEMA["properties"]["spec"], body["spec"]))
    assert stored == without_empty(LLMBackend.parse(body).spec.to_dict())


def test_the_type_of_the_engine_cannot_be_changed(api: Any) -> None:
    api.create({**backend(name="fixed"), "metadata": {"name": "fixed", "namespace": "default"}})
    path = api.path("LLMBackend", "default", "fixed")
    answer = api.request(
        "PATCH",
        path,
        json={"spec": {"engine": {"type": "VLLM"}}},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    api.delete("LLMBackend", "default", "fixed")
    assert answer.status_code == 422
    assert "the engine's type cannot be changed; make a new LLMBackend" in answer.json()["message"]


def test_autoscalers_can_scale_it(api: Any) -> None:
    api.create({**backend(name="scaled"), "metadata": {"name": "scaled", "namespace": "default"}})
    scaled = api.patch("LLMBackend", "default", "scaled", {"spec": {"replicas": 3}}, subresource="scale")
    stored = api.get("LLMBackend", "default", "scaled")
    api.delete("LLMBackend", "default", "scaled")
    assert scaled["kind"] == "Scale"
    assert stored["spec"]["replicas"] == 3


def test_unknown_fields_are_named_when_asked_for(api: Any) -> None:
    """`kubectl` asks for strict checking, so a typing error does not pass in silence."""
    body = copy.deepcopy(backend())
    body["spec"]["replica"] = 2
    answer = api.request(
        "POST", api.path("LLMBackend", "default"), json=body, params={"dryRun": "All", "fieldValidation": "Strict"}
    )
    assert answer.status_code == 400
    assert 'unknown field "spec.replica"' in answer.json()["message"]


def as_text(value: Any) -> Any:
    """Write quantities as the model does: the API server keeps whole numbers as numbers."""
    if not isinstance(value, dict):
        return [as_text(entry) for entry in value] if isinstance(value, list) else value
    return {
        name: {key: str(entry) for key, entry in inner.items()} if name in {"limits", "requests"} else as_text(inner)
        for name, inner in value.items()
    }
