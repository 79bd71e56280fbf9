"""Kubernetes quantities: amounts with a unit suffix, such as `500m`, `2` and `16Gi`."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

_UNIT = r"([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$"

QUANTITY_PATTERN = rf"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+){_UNIT}"
"""A quantity that is not negative."""

POSITIVE_PATTERN = rf"^\+?(0*[1-9][0-9]*(\.[0-9]*)?|0*\.0*[1-9][0-9]*){_UNIT}"
"""A quantity above zero."""

_CHARACTERS = 64
_FORM = re.compile(QUANTITY_PATTERN)
_PARTS = re.compile(r"\+?([0-9.]+)(.*)")
_FACTORS = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


def _text(value: Any) -> Any:  # noqa: ANN401 - anything may stand in the object
    """Write whole numbers as text; what is neither text nor a number is left for the validator to refuse."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _schema(pattern: str, *, minimum: int) -> WithJsonSchema:
    return WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": pattern,
            "minimum": minimum,
            "maxLength": _CHARACTERS,
        }
    )


Quantity = Annotated[
    str,
    BeforeValidator(_text),
    Field(pattern=QUANTITY_PATTERN, max_length=_CHARACTERS),
    _schema(QUANTITY_PATTERN, minimum=0),
]
"""An amount as Kubernetes writes it. A whole number may be written without quotes; in Python it is always text."""

PositiveQuantity = Annotated[
    str,
    BeforeValidator(_text),
    Field(pattern=POSITIVE_PATTERN, max_length=_CHARACTERS),
    _schema(POSITIVE_PATTERN, minimum=1),
]
"""An amount of something that cannot be nothing."""


def amount(quantity: str) -> Decimal:
    """Return the number a quantity stands for.

    Raises:
        ValueError: the text is no quantity.
    """
    parts = _PARTS.fullmatch(quantity)
    if parts is None or _FORM.fullmatch(quantity) is None:
        raise ValueError(f"`{quantity}` is no quantity; write a number with a unit, such as 500m or 16Gi")
    number, suffix = parts.groups()
    if suffix in _FACTORS:
        return Decimal(number) * _FACTORS[suffix]
    return Decimal(f"{number}e{suffix[1:]}")
