"""Turns pydantic's JSON schema into a structural schema, the dialect of CustomResourceDefinitions.

The API server refuses references, null types and several keywords, and applies a nested default only where its parent
exists. So references are inlined, `X | None` becomes X, what has no counterpart is dropped, and an object whose fields
have defaults gets the default `{}` unless it is required or absent means something.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

KEPT = (
    "description",
    "type",
    "format",
    "x-kubernetes-int-or-string",
    "anyOf",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "default",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
)
"""What a structural schema may hold, in the order it is written. Anything else pydantic emits is dropped."""

_DROPPED = frozenset({"title", "const", "$ref", "$defs"})


class UnsupportedSchemaError(TypeError):
    """A model uses something that has no counterpart in a structural schema; the message says where."""


def structural(model: type[BaseModel]) -> Schema:
    """Return the structural schema of a model.

    Raises:
        UnsupportedSchemaError: the model holds a union, a reference to itself, or a keyword unknown here.
    """
    source = model.model_json_schema(by_alias=True)
    return _convert(source, source.get("$defs", {}), path=(model.__name__,))


def _convert(source: Schema, definitions: Schema, *, path: tuple[str, ...]) -> Schema:
    merged = _without_references(source, definitions, path=path)
    unknown = merged.keys() - set(KEPT) - _DROPPED
    if unknown:
        raise UnsupportedSchemaError(f"{'.'.join(path)}: no counterpart for {', '.join(sorted(unknown))}")
    if "const" in merged:
        merged["enum"] = [merged["const"]]
    if merged.get("additionalProperties") is True:
        # What the API server would keep unread can be nested deep enough to break every reader.
        raise UnsupportedSchemaError(f"{'.'.join(path)}: fields of any type; write a model")
    if "properties" in merged:
        merged["properties"] = {
            name: _convert(schema, definitions, path=(*path, name)) for name, schema in merged["properties"].items()
        }
    if isinstance(merged.get("additionalProperties"), dict):
        merged["additionalProperties"] = _convert(merged["additionalProperties"], definitions, path=(*path, "*"))
    if "items" in merged:
        merged["items"] = _convert(merged["items"], definitions, path=(*path, "[]"))
    if merged.get("type") == "integer":
        merged.setdefault("format", "int32")
    _settle_default(merged)
    if "description" in merged:
        merged["description"] = " ".join(merged["description"].split())
    return {key: merged[key] for key in KEPT if key in merged}


def _without_references(source: Schema, definitions: Schema, *, path: tuple[str, ...]) -> Schema:
    """Inline `$ref` and unwrap `anyOf: [X, null]`; what stands beside a reference wins over what it refers to."""
    merged = dict(source)
    while "$ref" in merged or _is_optional(merged):
        if "$ref" in merged:
            name = merged.pop("$ref").rpartition("/")[2]
            if name in path:
                raise UnsupportedSchemaError(f"{'.'.join(path)}: {name} refers to itself")
            merged = {**definitions[name], **merged}
            continue
        (inner,) = (option for option in merged.pop("anyOf") if option != {"type": "null"})
        merged = {**inner, **merged}
    if "anyOf" in merged and not merged.get("x-kubernetes-int-or-string"):
        raise UnsupportedSchemaError(f"{'.'.join(path)}: a union; use sibling fields and a rule")
    return merged


def _is_optional(schema: Schema) -> bool:
    options = schema.get("anyOf", [])
    return len(options) == 2 and {"type": "null"} in options


def _settle_default(schema: Schema) -> None:
    """Keep a default only where the API server should write it into the object."""
    default = _without_absent(schema.pop("default", None))
    if default is None:
        return
    if schema.get("type") != "object":
        schema["default"] = default
        return
    fields = {name: field["default"] for name, field in schema.get("properties", {}).items() if "default" in field}
    differs = any(value != fields.get(name) for name, value in default.items() if fields.get(name) != {})
    if differs or (fields and "x-kubernetes-validations" in schema):
        # Rules judge the default as it is written here, before the defaults of its fields are filled in.
        schema["default"] = default
    elif fields:
        schema["default"] = {}


def _without_absent(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Leave out what stands for "not given": nulls and empty lists, and in objects empty objects, recursively."""
    if isinstance(value, dict):
        given = {key: _without_absent(entry) for key, entry in value.items()}
        return {key: entry for key, entry in given.items() if entry not in (None, {})}
    return None if value in (None, []) else value
