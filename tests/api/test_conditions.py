"""Conditions keep to Kubernetes' conventions."""

from __future__ import annotations

import re

import pytest

from penstock.api.conditions import Condition, ConditionType, Reason


@pytest.mark.parametrize("word", [*ConditionType, *Reason])
def test_types_and_reasons_are_single_camel_case_words(word: str) -> None:
    assert re.fullmatch(r"([A-Z][a-z]+)+", word)


def test_a_condition_is_written_as_kubernetes_spells_it() -> None:
    condition = Condition.model_validate(
        {
            "type": "Ready",
            "status": "True",
            "reason": Reason.ALL_REPLICAS_READY,
            "message": "2 of 2 replicas are ready.",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 3,
        }
    )
    assert condition.to_dict() == {
        "type": "Ready",
        "status": "True",
        "reason": "AllReplicasReady",
        "message": "2 of 2 replicas are ready.",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 3,
    }
