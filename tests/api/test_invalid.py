"""Every object of `invalid.py` is refused by the model, or found by the checks, with its field and a way out."""

from __future__ import annotations

import pytest

from penstock.api.backend import LLMBackend
from penstock.api.errors import InvalidBackend
from penstock.engines.engine import for_type
from tests.api.examples import backend
from tests.api.invalid import REFUSED, STALLED, Invalid


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_the_model_refuses_it_with_its_field_and_a_way_out(case: Invalid) -> None:
    with pytest.raises(InvalidBackend) as caught:
        LLMBackend.parse(case.body)
    found = [(problem.field, problem.message) for problem in caught.value.problems]
    field, words = case.model_field or case.field, case.model_words or case.words
    assert any(path == field and words in message for path, message in found), found


@pytest.mark.parametrize("case", STALLED, ids=lambda case: case.name)
def test_what_the_api_server_cannot_see_is_found_with_its_field_and_a_way_out(case: Invalid) -> None:
    spec = LLMBackend.parse(case.body).spec
    found = [(problem.field, problem.message) for problem in for_type(spec.engine.type).check(spec)]
    assert any(path == case.field and case.words in message for path, message in found), found


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(InvalidBackend) as caught:
        LLMBackend.parse(backend(replicas=-1, service={"port": 0}))
    assert {problem.field for problem in caught.value.problems} == {"spec.replicas", "spec.service.port"}


def test_names_tell_the_objects_apart() -> None:
    names = [case.name for case in (*REFUSED, *STALLED)]
    assert len(names) == len(set(names)) > 60
