"""A resident client program on httpx without an SDK: what it sees is a status, headers and a body.

It reads a task per line and answers with a line, as `stainless.py` does. Run with the interpreter that has httpx.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

httpx: Any = importlib.import_module("httpx")
EVENTS_BEFORE_LEAVING = 2


def ask(client: Any, task: dict[str, Any]) -> dict[str, Any]:
    """Do one task and say what was seen."""
    seen: dict[str, Any] = {"body": ""}
    request = {"headers": task["headers"], "content": task["text"], "timeout": task["seconds"]}
    try:
        if task["do"] == "whole":
            response = client.post(task["url"], **request)
            return {"status": response.status_code, "headers": dict(response.headers), "body": response.text}
        with client.stream("POST", task["url"], **request) as response:
            seen |= {"status": response.status_code, "headers": dict(response.headers)}
            for piece in response.iter_text():
                seen["body"] += piece
                if task["do"] == "leave" and seen["body"].count("\n\n") >= EVENTS_BEFORE_LEAVING:
                    break
    except httpx.HTTPError as error:
        seen["error"] = type(error).__name__
    return seen


def main() -> None:
    """Do tasks until standard input ends."""
    with httpx.Client(trust_env=False) as client:
        for line in sys.stdin:
            print(json.dumps(ask(client, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
