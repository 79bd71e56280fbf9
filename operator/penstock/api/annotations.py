"""Annotations that mean the same to pydantic and to the API server.

`Field(...)` covers what JSON schema knows. These two add what it does not: lists that are maps, and text of a given
form with a message of its own, where a plain `pattern` would answer the user with a regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from penstock.api.base import ApiModel, cel_text


@dataclass(frozen=True)
class ListMap:
    """Marks a list as a map by one key: merged entry by entry on apply, and the key may not repeat."""

    key: str

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._unique, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        result = handler(schema)
        result["x-kubernetes-list-type"] = "map"
        result["x-kubernetes-list-map-keys"] = [self.key]
        return result

    def _unique(self, entries: Sequence[ApiModel]) -> Sequence[ApiModel]:
        keys = [entry.to_dict().get(self.key) for entry in entries]
        repeated = sorted({str(key) for key in keys if keys.count(key) > 1})
        if repeated:
            text = f"`{self.key}` repeats: {', '.join(repeated)}; write each once"
            raise PydanticCustomError("list_map", "{text}", {"text": text})
        return entries


@dataclass(frozen=True)
class Matches:
    """Text that matches a pattern as a whole.

    Attributes:
        pattern: A regular expression that RE2 and Python read alike, from `^` to `$`.
        message: What to write, for people.
    """

    pattern: str
    message: str

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        result = handler(schema)
        result["x-kubernetes-validations"] = [
            {"rule": f"self.matches({cel_text(self.pattern)})", "message": self.message}
        ]
        return result

    def _check(self, text: str) -> str:
        if re.fullmatch(self.pattern, text) is None:
            raise PydanticCustomError("form", "{text}", {"text": self.message})
        return text
