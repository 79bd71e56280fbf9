"""Wishes: every generation path has a kind."""

from __future__ import annotations

import pytest

from penstock.api.engine import EngineType
from penstock.engines.engine import for_type
from penstock.engines.facts import RequestClass
from penstock.limiter.wish import KINDS, Kind, Wish


def test_the_table_has_every_generation_path_of_both_engines_and_no_other() -> None:
    paths = {
        path
        for engine in EngineType
        for path, request_class in for_type(engine).facts.allowed_paths.items()
        if request_class is RequestClass.GENERATION
    }
    assert set(KINDS) == paths


@pytest.mark.parametrize(
    ("wish", "can"),
    [
        (Wish(kind=Kind.CHAT, stream=True), True),
        (Wish(kind=Kind.COMPLETIONS, stream=True), True),
        (Wish(kind=Kind.CHAT, stream=False), False),
        (Wish(kind=Kind.CHAT, stream=True, include_usage=True), False),
        (Wish(kind=Kind.MESSAGES, stream=True), False),
        (Wish(kind=Kind.RESPONSES, stream=True), False),
        (Wish(kind=Kind.NATIVE, stream=True), False),
    ],
)
def test_usage_is_asked_for_where_the_engine_would_not_tell(wish: Wish, can: bool) -> None:
    assert wish.can_add_usage is can
