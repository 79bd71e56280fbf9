"""What all API types share: camelCase on the wire, unknown fields ignored, and rules that are both CEL and Python.

A field's own constraints live in its `Field(...)` and reach the CRD through the generated JSON schema. What spans
several fields is a `Rule`: the CEL expression that the API server evaluates stands beside the Python predicate that
the model runs, so the two can be read, and tested, together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A condition over several fields of one object.

    Attributes:
        cel: The expression the API server evaluates with `self` bound to the object.
        message: What to write instead, for people.
        holds: The same condition over the parsed model; None for a rule that only a change can break (`oldSelf`).
        message_expression: CEL that builds a more helpful message on the API server; `message` is the fallback.
        field: The camelCase field below the object that the message is about; empty for the object itself.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool] | None
    message_expression: str = ""
    field: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return the rule as the CRD holds it."""
        entries = {
            "rule": self.cel,
            "message": self.message,
            "messageExpression": self.message_expression,
            "fieldPath": f".{self.field}" if self.field else "",
        }
        return {key: value for key, value in entries.items() if value}


class Toggle(StrEnum):
    """Whether something is done; an enumeration, so that a third answer can be added."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


def cel_text(text: str) -> str:
    """Return text as a CEL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class ApiModel(BaseModel):
    """Base of everything that crosses the API: camelCase aliases, both spellings accepted in Python, frozen.

    Unknown fields are ignored, so an old operator can read objects written for a newer CRD.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        for rule in self.rules:
            if rule.holds is not None and not rule.holds(self):
                raise PydanticCustomError("rule", "{text}", {"text": rule.message, "field": rule.field})
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        if cls.rules:
            handler.resolve_ref_schema(schema)["x-kubernetes-validations"] = [rule.to_dict() for rule in cls.rules]
        return schema

    def to_dict(self) -> dict[str, Any]:
        """Return the object as Kubernetes spells it: camelCase keys, absent values left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
