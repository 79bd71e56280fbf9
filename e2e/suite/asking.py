"""How the suite asks a backend whose callers need API keys: each time something that nobody has asked before."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json

import openai

from e2e.suite.backends import Backend
from e2e.suite.streams import ending

_numbers = itertools.count(1)


def prompt() -> str:
    """Return a prompt that nobody has sent before: the same one again might be taken for a repetition."""
    return f"Rivers, chapter {next(_numbers)}"


def speak(backend: Backend, key: str) -> openai.OpenAI:
    """Return the official client as a user sets it up, without retries: a refusal must show."""
    return openai.OpenAI(base_url=f"{backend.url}/v1", api_key=key, max_retries=0, timeout=120)


def status(backend: Backend, key: str | None) -> int:
    """Ask for one token and return the status of the answer."""
    headers = {"Content-Type": "application/json"} | ({} if key is None else {"Authorization": f"Bearer {key}"})
    connection = http.client.HTTPConnection(backend.url.removeprefix("http://"), timeout=30)
    with contextlib.closing(connection):
        body = json.dumps({"model": backend.model, "prompt": prompt(), "max_tokens": 1})
        connection.request("POST", "/v1/completions", body, headers)
        return connection.getresponse().status


def complete(one: openai.OpenAI, model: str, tokens: int) -> tuple[str, int]:
    """Stream exactly so many tokens; return the finish reason and the tokens the engine counted."""
    with one.completions.create(
        model=model,
        prompt=prompt(),
        max_tokens=tokens,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    ) as stream:
        return ending(stream)
