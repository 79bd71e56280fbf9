"""A resident client program for the SDKs that one generator makes: openai, anthropic and ogx_client.

Run as `python stainless.py MODULE` with the interpreter that has the SDK. It reads a task per line from standard input
and answers with a line that says what an application would have seen: text, or an exception and what is on it. How long
the SDK waits between two tries is taken from its own calls of `time.sleep`, which a task can let pass at once.

Standard library and the SDK only: it runs in an environment that holds nothing of the project.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

sdk: Any = importlib.import_module(sys.argv[1])
CLIENTS = {"openai": "OpenAI", "anthropic": "Anthropic", "ogx_client": "OgxClient"}
ARGUMENTS = {"model", "messages", "max_tokens"}
"""What all of them have an argument for; the rest of a body goes beside."""

EVENTS_BEFORE_LEAVING = 2
_sleep = time.sleep


class Sleeps:
    """Every call of `time.sleep`, in place of which it stands."""

    def __init__(self, *, pass_at_once: bool) -> None:
        self.seconds: list[float] = []
        self._pass_at_once = pass_at_once

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if not self._pass_at_once:
            _sleep(seconds)


def client(task: dict[str, Any]) -> Any:
    """Return an SDK client as a user would make it."""
    name = sys.argv[1]
    base = task["url"] + ("/v1" if name == "openai" else "")
    return getattr(sdk, CLIENTS[name])(
        base_url=base, api_key=task["key"], max_retries=task["retries"], timeout=task["seconds"]
    )


def create(api: Any) -> Callable[..., Any]:
    """Return the method that asks for an answer."""
    method: Callable[..., Any] = api.messages.create if sys.argv[1] == "anthropic" else api.chat.completions.create
    return method


def text_of(answer: Any) -> str:
    """Return the text of a whole answer."""
    if sys.argv[1] == "anthropic":
        return "".join(part.text for part in answer.content)
    return answer.choices[0].message.content or ""


def pieces(stream: Any, seen: dict[str, Any]) -> Iterator[str]:
    """Yield the text of each event of a stream, and note how the answer ended."""
    for event in stream:
        if sys.argv[1] == "anthropic":
            if event.type == "content_block_delta":
                yield event.delta.text
            elif event.type == "message_delta":
                seen["finish"] = event.delta.stop_reason
        elif event.choices:
            choice = event.choices[0]
            seen["finish"] = choice.finish_reason or seen.get("finish")
            if choice.delta.content:
                yield choice.delta.content


def ask(api: Any, task: dict[str, Any], seen: dict[str, Any]) -> None:
    """Do the task; what was seen before an exception stays in `seen`."""
    headers = task["headers"]
    body = {name: value for name, value in task["body"].items() if name in ARGUMENTS}
    more = {"extra_headers": headers, "extra_body": {name: task["body"][name] for name in task["body"].keys() - body}}
    if task["path"]:
        prefix = "" if sys.argv[1] == "openai" else "/v1"
        api.post(prefix + task["path"].removeprefix("/v1"), cast_to=object, body=body, options={"headers": headers})
    elif task["do"] == "whole":
        seen["text"] = text_of(create(api)(**body, **more))
    else:
        stream = create(api)(**body, stream=True, **more)
        for count, piece in enumerate(pieces(stream, seen), 1):
            seen["text"] += piece
            if task["do"] == "leave" and count == EVENTS_BEFORE_LEAVING:
                stream.close()
                break
    seen["status"] = 200


def describe(error: Any) -> dict[str, Any]:
    """Return what an application can read from an exception, usually one of the SDK."""
    response = getattr(error, "response", None)
    return {
        "error": type(error).__name__,
        "status": getattr(error, "status_code", None),
        "code": getattr(error, "code", None),
        "kind": getattr(error, "type", None),
        "body": json.dumps(getattr(error, "body", None)),
        "headers": dict(response.headers) if response is not None else {},
    }


def main() -> None:
    """Do tasks until standard input ends; one client does all tasks with the same settings, as one program would."""
    clients: dict[str, Any] = {}
    for line in sys.stdin:
        task = json.loads(line)
        settings = json.dumps([task[name] for name in ("url", "key", "retries", "seconds")])
        api = clients[settings] = clients.get(settings) or client(task)
        seen: dict[str, Any] = {"text": ""}
        sleeps = time.sleep = Sleeps(pass_at_once=task["sleeps_pass"])  # type: ignore[assignment]
        try:
            ask(api, task, seen)
        except Exception as error:  # an application meets those too that the SDK lets through
            seen |= describe(error)
        print(json.dumps({**seen, "sleeps": sleeps.seconds}), flush=True)


if __name__ == "__main__":
    main()
