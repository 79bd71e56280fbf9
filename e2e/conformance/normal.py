"""Answers in normal form: what two correct servers share is kept, the rest is replaced by its form."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

HEADERS = ("content-type", "allow", "vary", "server", "transfer-encoding")
ID = re.compile(r"[0-9a-f]{16}")
FINGERPRINT = re.compile(r"vllm-([0-9.]+)-[0-9a-f]{8}")
TIMES = {"created", "created_at"}
GENERATED = {"text", "content", "delta", "decoded_token", "token", "prompt_text"}
NUMBERS = {"logprob", "rank"}
BY_TEXT = {"top_logprobs", "prompt_logprobs"}


def _form(value: Any) -> Any:
    """Return a value with everything generated replaced by its type."""
    if isinstance(value, str):
        return "<text>"
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return "<number>"
    if isinstance(value, list):
        return [_form(item) for item in value]
    return dict.fromkeys(["<key>"], _form(next(iter(value.values())))) if value else {}


def _logprobs(value: dict[str, Any]) -> dict[str, Any]:
    """Return a completion's log probabilities: lengths and which entries are null."""
    return {key: _form(items) for key, items in value.items()}


def document(value: Any, *, exact: bool = False, key: str = "") -> Any:
    """Return a JSON value in normal form.

    Args:
        value: As parsed.
        exact: Whether generated text is compared.
        key: The field it stands in.
    """
    if isinstance(value, dict):
        if "text_offset" in value:
            return _logprobs(value)
        if key == "<logprob>" and "token" not in value:
            return _form(value)
        return {name: _field(name, item, exact=exact) for name, item in sorted(value.items())}
    if isinstance(value, list):
        return [document(item, exact=exact, key=key) for item in value]
    return value


def _field(name: str, value: Any, *, exact: bool) -> Any:
    simple: dict[str, Callable[[], Any]] = {
        "bytes": lambda: None if value is None else "<bytes>",
        "token_ids": lambda: None if value is None else ["<token>"] * len(value),
        "system_fingerprint": lambda: FINGERPRINT.sub(r"vllm-\1-#8", value) if value else value,
        "root": lambda: "<folder>",
    }
    if name in simple:
        return simple[name]()
    if name in TIMES:
        return "<seconds>" if isinstance(value, int) else value
    if name in NUMBERS:
        return "<number>"
    if name == "prompt_logprobs" and isinstance(value, list):
        return [None if step is None else {"<token>": _shape(step)} for step in value]
    if isinstance(value, str):
        if name == "id" or name.endswith("_id"):
            return ID.sub("#16", value)
        return value if exact or name not in GENERATED else "<text>"
    return document(value, exact=exact, key=name)


def _shape(step: dict[str, Any]) -> Any:
    entry = next(iter(step.values()))
    return {name: _form(value) for name, value in sorted(entry.items())}


def events(text: str, *, exact: bool = False) -> list[Any]:
    """Return a stream of server-sent events in normal form, runs of equal ones as one.

    Raises:
        ValueError: The text is no such stream.
    """
    listed: list[Any] = []
    if not text.endswith("\n\n"):
        raise ValueError(f"the stream does not end with an empty line: {text[-80:]!r}")
    for block in text.removesuffix("\n\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        if set(fields) - {"event", "data"}:
            raise ValueError(f"an event has unknown fields: {block[:80]!r}")
        data = fields["data"]
        entry: dict[str, Any] = {"data": data if data == "[DONE]" else document(json.loads(data), exact=exact)}
        if isinstance(entry["data"], dict):
            entry["data"].pop("sequence_number", None)
        if "event" in fields:
            entry["event"] = fields["event"]
        if not listed or listed[-1] != entry:
            listed.append(entry)
    return listed


def answer(status: int, headers: dict[str, str], body: bytes, *, exact: bool = False) -> dict[str, Any]:
    """Return a whole HTTP answer in normal form.

    Args:
        status: Of the response.
        headers: With names in lower case.
        body: Decoded from its framing.
        exact: Whether generated text is compared.
    """
    shown: dict[str, Any] = {name: headers[name] for name in HEADERS if name in headers}
    if "content-length" in headers:
        shown["content-length"] = headers["content-length"] == str(len(body))
    kind = headers.get("content-type", "")
    content: Any
    if kind.startswith("text/event-stream"):
        content = events(body.decode(), exact=exact)
    elif kind.startswith("application/json"):
        content = document(json.loads(body), exact=exact)
    else:
        content = body.decode()
    return {"status": status, "headers": shown, "body": content}


SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
OPEN_LABELS = {"version", "patchlevel", "minor", "implementation", "major"}


def samples(text: str) -> list[tuple[str, dict[str, str], float]]:
    """Return name, labels and value of every sample of an exposition."""
    return [
        (match["name"], dict(LABEL.findall(match["labels"] or "")), float(match["value"]))
        for line in text.splitlines()
        if not line.startswith("#") and (match := SAMPLE.match(line))
    ]


def metrics(text: str, *, cache_labels: set[str]) -> dict[str, Any]:
    """Return an exposition's families: type, and every combination of labels, in normal form.

    Which handlers and methods the `http_` families have depends on what was asked before, so their values are left out.
    """
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    series: dict[str, set[str]] = {}
    for name, labels, _ in samples(text):
        kept = {key: "<any>" if key in OPEN_LABELS else value for key, value in labels.items()}
        if name.startswith("http_"):
            kept = {key: value if key == "le" else "<any>" for key, value in kept.items()}
        if name == "vllm:cache_config_info":
            kept = {key: value for key, value in kept.items() if key in cache_labels}
        series.setdefault(name, set()).add(json.dumps(kept, sort_keys=True))
    return {
        "types": dict(sorted(types.items())),
        "series": {name: sorted(found) for name, found in sorted(series.items())},
    }


def differences(expected: Any, actual: Any, path: str = "") -> list[str]:
    """Return where two normal forms differ, one line each."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        lines = [f"{path}.{name}: missing" for name in expected.keys() - actual.keys()]
        lines += [f"{path}.{name}: not in the recording" for name in actual.keys() - expected.keys()]
        for name in sorted(expected.keys() & actual.keys()):
            lines += differences(expected[name], actual[name], f"{path}.{name}")
        return lines
    if isinstance(expected, list) and isinstance(actual, list):
        lines = []
        if len(expected) != len(actual):
            lines.append(f"{path}: {len(actual)} items instead of {len(expected)}")
        for index, (left, right) in enumerate(zip(expected, actual, strict=False)):
            lines += differences(left, right, f"{path}[{index}]")
        return lines
    if type(expected) is not type(actual) or expected != actual:
        return [f"{path}: {actual!r} instead of {expected!r}"]
    return []
