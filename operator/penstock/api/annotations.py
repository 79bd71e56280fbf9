"""Annotations that mean the same to pydantic and to the API server.

`Field(...)` covers what JSON schema knows. These add what it does not: lists that are maps, text and keys of a given
form with a message of its own, where a plain `pattern` would answer the user with a regular expression, and networks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
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


@dataclass(frozen=True)
class MatchingKeys:
    """A map whose keys all match a pattern as a whole, or none of them.

    Attributes:
        pattern: A regular expression that RE2 and Python read alike, from `^` to `$`.
        message: What to write, for people; the key stands before it.
        refused: Whether the keys must not match.
        longest: Most characters of a key, where the pattern does not bound them.
        named: Whether the API server names the key, at the price of saying the pattern twice.
    """

    pattern: str
    message: str
    refused: bool = False
    longest: int | None = None
    named: bool = True

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        result = handler(schema)
        matches = f"k.matches({cel_text(self.pattern)})"
        wrong = matches if self.refused else f"!{matches}"
        if self.longest is not None:
            wrong = f"k.size() > {self.longest} || {wrong}"
        rule = {"rule": f"!self.exists(k, {wrong})", "message": self.message}
        if self.named:
            rule["messageExpression"] = f"'`' + self.filter(k, {wrong})[0] + {cel_text('`: ' + self.message)}"
        result["x-kubernetes-validations"] = [*result.get("x-kubernetes-validations", ()), rule]
        return result

    def _check(self, entries: Mapping[str, object]) -> Mapping[str, object]:
        for key in entries:
            too_long = self.longest is not None and len(key) > self.longest
            if too_long or (re.fullmatch(self.pattern, key) is not None) == self.refused:
                raise PydanticCustomError("form", "{text}", {"text": f"`{key}`: {self.message}"})
        return entries


_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"

Cidr = Annotated[
    str,
    Field(max_length=64),
    Matches(
        rf"^(({_OCTET}\.){{3}}{_OCTET}/(3[0-2]|[12]?[0-9])|"
        r"[0-9A-Fa-f]*:[0-9A-Fa-f:.]*/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))$",
        "must be a network such as 10.0.0.0/8 or fd00::/8",
    ),
]
"""A network in CIDR form. The form of an IPv6 address is judged roughly here, and wholly in `checks`."""
