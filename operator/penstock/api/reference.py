"""The reference page of LLMBackend: every field with type, default and meaning, generated from the CRD's schema."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise

from penstock.api.backend import API_VERSION, KIND
from penstock.api.conditions import ConditionType, Reason
from penstock.api.crd import PRINTER_COLUMNS, SHORT_NAME, schema
from penstock.api.schema import Schema

_HEAD = f"""# LLMBackend

`apiVersion: {API_VERSION}`, `kind: {KIND}`, short name `{SHORT_NAME}`, namespaced. The same texts are in
`kubectl explain llmbackend.spec`; [engines.md](engines.md) tells what is particular to each engine, and
[admission-rate.md](admission-rate.md) what the words in `status.admission` mean. This page is generated from the model
in `operator/penstock/api`; run `python scripts/generate.py` after changing it.

The smallest object:

```yaml
apiVersion: {API_VERSION}
kind: {KIND}
metadata:
  name: smollm2
spec:
  engine:
    type: LlamaCpp
  model:
    name: smollm2-135m
    source:
      huggingFace:
        repository: HuggingFaceTB/SmolLM2-135M-Instruct-GGUF
        file: smollm2-135m-instruct-q8_0.gguf
```

Everything else has a default. Larger objects are in [examples/](../../examples).

What takes effect while replicas run: `replicas`, `suspend`, `paused`, `service`, `disruption`, `rollout`,
`upgradePolicy`, `monitoring`, `networkPolicy`, `admission`, `tenants`, `resilience`, `limiter.logLevel`,
`limiter.maximumBodyMebibytes`, `health.stallTimeoutSeconds` and `health.warmup`. A change of anything else, or of a
Secret's name, replaces the pods, one after the other and without cutting a request.
"""


_RULES_HEAD = """\
The API server refuses an object that breaks one of these. What it cannot see (refused engine arguments in all their
spellings, amounts of memory that do not fit together, mounts over Penstock's own, a tenant in two classes) is found by
the operator: the object is `Stalled` with reason `InvalidSpec`, the message names the field and what to write instead,
and nothing is made or changed until the spec changes."""


def page() -> str:
    """Return the page as Markdown."""
    whole = schema()
    parts = [_HEAD]
    for top in ("spec", "status"):
        parts.extend(_sections(whole["properties"][top], path=top))
    parts.append(_rules(whole))
    parts.append(words("Conditions", "type", ConditionType))
    parts.append(words("Reasons", "reason", Reason))
    parts.append(_columns())
    return "\n".join(parts)


def _sections(node: Schema, *, path: str) -> Iterator[str]:
    """Yield one table per object, outer objects first."""
    rows = [f"## `{path}`", "", node["description"], "", "| field | type | default | meaning |", "|---|---|---|---|"]
    nested = []
    required = node.get("required", [])
    for name, field in node["properties"].items():
        default = "required" if name in required else _default(field)
        rows.append(f"| `{name}` | {_type(field)} | {default} | {_cell(field.get('description', ''))} |")
        inner, suffix = (field["items"], "[]") if "items" in field else (field, "")
        if _described(inner):
            nested.append((inner, f"{path}.{name}{suffix}"))
    yield "\n".join(rows) + "\n"
    for inner, inner_path in nested:
        yield from _sections(inner, path=inner_path)


def _described(node: Schema) -> bool:
    """Tell whether an object has fields that are told here; Kubernetes' own types are not described again."""
    return any("description" in field for field in node.get("properties", {}).values())


def _type(field: Schema) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "enum" in field:
        return ", ".join(f"`{value}`" if value else '`""`' for value in field["enum"])
    if field["type"] == "array":
        return f"list of {_type(field['items'])}" if "properties" not in field["items"] else "list"
    if field["type"] == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"map of {_type(field['additionalProperties'])}"
    if field["type"] == "integer":
        return "integer" + _range(field)
    return str(field["type"])


def _range(field: Schema) -> str:
    low, high = field.get("minimum"), field.get("maximum")
    if high is not None:
        return f", {low} to {high}"
    return "" if low is None else f", at least {low}"


def _default(field: Schema) -> str:
    default = field.get("default")
    if default is None or default in ({}, ""):
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if not isinstance(default, dict) else "see its fields"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _rules(whole: Schema) -> str:
    lines = ["## Rules", "", _RULES_HEAD, ""]
    fields: dict[str, list[str]] = {}
    for path, message in _messages(whole, path=""):
        fields.setdefault(message, []).append(f"`{path}`")
    lines += [f"- {', '.join(dict.fromkeys(paths))}: {message}" for message, paths in fields.items()]
    return "\n".join(lines) + "\n"


def _messages(node: Schema, *, path: str, told: bool = True) -> Iterator[tuple[str, str]]:
    """Yield path and message of each rule; one inside a type that is not told stands at the field of that type."""
    for rule in node.get("x-kubernetes-validations", ()):
        place = path + rule.get("fieldPath", "") if told else path
        yield place.lstrip(".") or "metadata.name", rule["message"]
    told = told and ("properties" not in node or _described(node))
    for name, field in node.get("properties", {}).items():
        yield from _messages(field, path=f"{path}.{name}" if told else path, told=told)
    if "items" in node:
        yield from _messages(node["items"], path=f"{path}[]" if told else path, told=told)


def words(title: str, column: str, enumeration: type[StrEnum]) -> str:
    """Return a table of an enumeration's values and the text that stands below each in its source."""
    (definition,) = ast.parse(inspect.getsource(enumeration)).body
    assert isinstance(definition, ast.ClassDef)  # noqa: S101 - the source of a class
    lines = [f"## {title}", "", f"| {column} | meaning |", "|---|---|"]
    for member, text in pairwise(definition.body[1:]):
        if isinstance(member, ast.Assign) and isinstance(text, ast.Expr):
            value, meaning = ast.literal_eval(member.value), ast.literal_eval(text.value)
            lines.append(f"| `{value}` | {_cell(' '.join(meaning.split()))} |")
    return "\n".join(lines) + "\n"


def _columns() -> str:
    lines = ["## What `kubectl get llmb` shows", "", "| column | from | |", "|---|---|---|"]
    for column in PRINTER_COLUMNS:
        wide = "with `-o wide`" if column.get("priority") else ""
        lines.append(f"| {str(column['name']).upper()} | `{column['jsonPath']}` | {wide} |")
    return "\n".join(lines) + "\n"
