"""Kubernetes quantities."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.quantity import POSITIVE_PATTERN, QUANTITY_PATTERN, amount


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", "0"),
        ("2", "2"),
        ("500m", "0.5"),
        ("1.5", "1.5"),
        (".5", "0.5"),
        ("3.", "3"),
        ("100n", "0.0000001"),
        ("10u", "0.00001"),
        ("1k", "1000"),
        ("2M", "2000000"),
        ("1Ki", "1024"),
        ("1.5Gi", "1610612736"),
        ("1e3", "1000"),
        ("2E-1", "0.2"),
        ("1E", "1000000000000000000"),
        ("+4", "4"),
    ],
)
def test_a_quantity_stands_for_a_number(text: str, number: str) -> None:
    assert amount(text) == Decimal(number)


@given(st.from_regex(QUANTITY_PATTERN.removesuffix("$") + r"\Z", alphabet=st.characters(max_codepoint=127)))
def test_whatever_the_schema_lets_in_can_be_read(text: str) -> None:
    assert amount(text) >= 0


@pytest.mark.parametrize("text", ["", "lots", "1GB", "-", "1 Gi"])
def test_other_text_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as 500m or 16Gi"):
        amount(text)


@given(st.from_regex(QUANTITY_PATTERN.removesuffix("$") + r"\Z", alphabet="0123456789.+mGiek"))
def test_positive_quantities_are_all_but_nothing(text: str) -> None:
    assert (re.fullmatch(POSITIVE_PATTERN, text) is not None) == (amount(text) > 0)
