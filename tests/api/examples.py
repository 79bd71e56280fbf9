"""Objects and helpers that the tests of the API share."""

from __future__ import annotations

import copy
import re
from typing import Any

import jsonschema

from penstock.api.crd import schema

Value = Any
MATCHES = re.compile(r"self\.matches\('(.*)'\)", re.DOTALL)
KEYS_MATCH = re.compile(r"!self\.exists\(k, (?:k\.size\(\) > (\d+) \|\| )?(!?)k\.matches\('(.*)'\)\)", re.DOTALL)

CRD_SCHEMA = schema()


def backend(*, name: str = "smollm2", **spec: Value) -> dict[str, Value]:
    """Return the smallest LLMBackend, with parts of its spec replaced."""
    return {
        "apiVersion": "serving.penstock.dev/v1alpha1",
        "kind": "LLMBackend",
        "metadata": {"name": name},
        "spec": {
            "engine": {"type": "LlamaCpp"},
            "model": {"name": "smollm2-135m", "source": {"baked": {"path": "/models/smollm2.gguf"}}},
            **spec,
        },
    }


def vllm(*, args: list[str] | None = None, **spec: Value) -> dict[str, Value]:
    """Return a small LLMBackend for vLLM, with parts of its spec replaced."""
    engine = {"type": "VLLM", **spec.pop("engine", {})}
    if args is not None:
        engine["args"] = args
    model = {"name": "qwen", "source": {"persistentVolumeClaim": {"claimName": "models", "path": "/qwen"}}}
    return backend(engine=engine, **{"model": model, **spec})


def for_jsonschema(node: dict[str, Value]) -> dict[str, Value]:
    """Return a structural schema that the jsonschema library understands: rules about text and keys become patterns.

    Rules over several fields stay out; they are proved on a real API server.
    """
    result: dict[str, Value] = {
        key: {name: for_jsonschema(entry) for name, entry in value.items()} if key == "properties" else value
        for key, value in node.items()
        if not key.startswith("x-kubernetes")
    }
    for key in ("items", "additionalProperties"):
        if key in result:
            result[key] = for_jsonschema(result[key])
    for rule in node.get("x-kubernetes-validations", ()):
        match = MATCHES.fullmatch(rule["rule"])
        if match and node.get("type") == "string":
            result["pattern"] = _unquoted(match[1])
        keys = KEYS_MATCH.fullmatch(rule["rule"])
        if keys:
            names: dict[str, Value] = {"pattern": _whole(_unquoted(keys[3]))}
            names = names if keys[2] else {"not": names}
            names |= {"maxLength": int(keys[1])} if keys[1] else {}
            result.setdefault("allOf", []).append({"propertyNames": names})
    if "pattern" in result:
        result["pattern"] = _whole(result["pattern"])
    return result


def _unquoted(literal: str) -> str:
    """Return the text of a CEL string literal."""
    return literal.replace("\\\\", "\\").replace("\\'", "'")


def _whole(pattern: str) -> str:
    """Return a pattern that reads `$` as Go does: Python's also matches before a line break at the end."""
    return rf"\A(?:{pattern.removesuffix('$')})\Z"


VALIDATOR = jsonschema.Draft202012Validator(for_jsonschema(CRD_SCHEMA))


def schema_accepts(body: dict[str, Value]) -> bool:
    """Tell whether the schema accepts an object, unique keys of list-maps included."""
    return VALIDATOR.is_valid(body) and _keys_are_unique(CRD_SCHEMA, body)


def defaulted(node: dict[str, Value], value: Value) -> Value:
    """Return a value with defaults filled in and unknown fields dropped, as the API server does."""
    if isinstance(value, dict) and "properties" in node:
        filled = {name: entry for name, entry in value.items() if name in node["properties"]}
        for name, field in node["properties"].items():
            if name not in filled and "default" in field:
                filled[name] = copy.deepcopy(field["default"])
        return {name: defaulted(node["properties"][name], entry) for name, entry in filled.items()}
    if isinstance(value, dict) and isinstance(node.get("additionalProperties"), dict):
        return {name: defaulted(node["additionalProperties"], entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [defaulted(node["items"], entry) for entry in value]
    return str(value) if node.get("x-kubernetes-int-or-string") else value


def without_empty(value: Value) -> Value:
    """Leave out empty lists and objects: absent and empty mean the same."""
    if isinstance(value, dict):
        kept = {name: without_empty(entry) for name, entry in value.items()}
        return {name: entry for name, entry in kept.items() if entry not in ([], {})}
    return [without_empty(entry) for entry in value] if isinstance(value, list) else value


def nodes(node: dict[str, Value], path: str = "") -> list[tuple[str, dict[str, Value]]]:
    """Return every schema in a schema, with its path."""
    found = [(path or ".", node)]
    for name, field in node.get("properties", {}).items():
        found += nodes(field, f"{path}.{name}")
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(node.get(key), dict):
            found += nodes(node[key], path + suffix)
    return found


def _keys_are_unique(node: dict[str, Value], value: Value) -> bool:
    if isinstance(value, dict):
        fields = node.get("properties", {})
        return all(_keys_are_unique(fields[name], entry) for name, entry in value.items() if name in fields)
    if isinstance(value, list):
        keys = [
            tuple(entry.get(key) for key in node.get("x-kubernetes-list-map-keys", ()))
            for entry in value
            if isinstance(entry, dict)
        ]
        unique = "x-kubernetes-list-map-keys" not in node or len(set(keys)) == len(keys)
        return unique and all(_keys_are_unique(node["items"], entry) for entry in value)
    return True
