"""The clients as the scenes see them: one `ask` for all, whatever library does the work.

An SDK takes what its users give it, arguments and a time-out, and shows an exception. A plain client takes a URL,
headers and a body, and shows a status and bytes; reading those is its application's work, which is done here.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Self

from e2e.clients.environments import NEWEST, OLDER, PROGRAMS, curl, go_program, node, python

STOP_SECONDS = 20.0
PATIENCE_SECONDS = 60.0
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


class Do(StrEnum):
    """What a client does with an answer."""

    WHOLE = "whole"
    """Asks for it in one piece."""

    STREAM = "stream"
    """Asks for a stream and reads all of it."""

    LEAVE = "leave"
    """Asks for a stream and closes it after the second event."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One request of an application.

    Attributes:
        url: Of the replica, without a path.
        key: API key.
        body: Arguments of the request besides `stream`.
        do: What is done with the answer.
        path: Another path than that of generation.
        retries: How often the client may try again by itself, if it can.
        seconds: Its time-out.
        headers: Further headers.
        sleeps_pass: Whether an SDK's waits between tries pass at once.
    """

    url: str
    key: str
    body: Mapping[str, Any]
    do: Do = Do.WHOLE
    path: str = ""
    retries: int = 0
    seconds: float = PATIENCE_SECONDS
    headers: Mapping[str, str] = field(default_factory=dict)
    sleeps_pass: bool = False


@dataclass(frozen=True)
class Seen:
    """What an application saw.

    Attributes:
        raised: Class of the exception, or the name its language has for the error; empty when there was none.
        status: HTTP status as far as the client shows it.
        code, kind: `error.code` and `error.type`, on the exception or in the body.
        text: Text of the answer.
        finish: How the answer says that it ended.
        headers: Of the answer, as far as the client shows them; names in lower case.
        sleeps: What an SDK waited before each further try, in seconds.
    """

    raised: str = ""
    status: int | None = None
    code: str | int | None = None
    kind: str | None = None
    text: str = ""
    finish: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    sleeps: tuple[float, ...] = ()


SDKS: Final = {
    "openai": ("openai", NEWEST),
    "openai-old": ("openai", OLDER),
    "ogx": ("ogx_client", NEWEST),
    "anthropic": ("anthropic", NEWEST),
}
"""Module and environment of each SDK."""

PLAIN_COMMANDS: Final[dict[str, Callable[[], list[object]]]] = {
    "httpx": lambda: [python(NEWEST), PROGRAMS / "plain_httpx.py"],
    "curl": lambda: [sys.executable, PROGRAMS / "curl.py", curl()],
    "node": lambda: [node(), PROGRAMS / "fetch.mjs"],
    "go": lambda: [go_program()],
}


class Client:
    """One resident client program; a context manager that ends it.

    Attributes:
        name: In tables, and of its tenant.
        sdk: Whether it tries again by itself and shows exceptions.
        unknown_path: A path of its API that no engine has.
    """

    sdk = False
    unknown_path = "/v1/batches"

    def __init__(self, name: str, argv: Sequence[object]) -> None:
        """Start it.

        Args:
            name: In tables, and of its tenant.
            argv: Its command line.
        """
        self.name = name
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *map(str, argv)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "NO_PROXY": "*"},
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has failed, and a test has said so
            self._process.stdin.close()
        self._process.wait(STOP_SECONDS)
        self._process.stdout.close()

    def begin(self, task: Task) -> None:
        """Give it a task; `end` says what it saw."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(self._written(task)) + "\n")
        self._process.stdin.flush()

    def end(self) -> Seen:
        """Wait for the end of the task."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"{self.name} ended with {self._process.wait(STOP_SECONDS)}; see what it wrote above"
        return self._read(json.loads(line))

    def ask(self, task: Task) -> Seen:
        """Do a whole task."""
        self.begin(task)
        return self.end()

    def _written(self, task: Task) -> dict[str, Any]:
        """Return a task for a plain client."""
        body = {**task.body, "stream": True} if task.do is not Do.WHOLE else dict(task.body)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {task.key}", **task.headers}
        return {
            "do": task.do,
            "url": task.url + (task.path or CHAT),
            "headers": headers,
            "text": json.dumps(body),
            "retries": task.retries,
            "seconds": task.seconds,
        }

    def _read(self, answer: dict[str, Any]) -> Seen:
        """Read an answer of OpenAI's API as the application of a plain client does."""
        raised, body = answer.get("error") or "", answer.get("body") or ""
        error: dict[str, Any] = {}
        text, finish = "", None
        for one in documents(body):
            error = one.get("error") or error
            for choice in one.get("choices", ()):
                text += (choice.get("message") or choice.get("delta") or {}).get("content") or ""
                finish = choice.get("finish_reason") or finish
        return Seen(
            raised=raised,
            status=answer.get("status"),
            code=error.get("code"),
            kind=error.get("type"),
            text=text,
            finish=finish,
            headers=answer.get("headers") or {},
        )


class Sdk(Client):
    """A client on an SDK."""

    sdk = True

    def __init__(self, name: str, module: str, environment: str) -> None:
        """Start it.

        Args:
            name: In tables, and of its tenant.
            module: The SDK's.
            environment: Which one has it.
        """
        super().__init__(name, [python(environment), PROGRAMS / "stainless.py", module])
        if module == "anthropic":
            self.unknown_path = "/v1/messages/batches"

    def _written(self, task: Task) -> dict[str, Any]:
        """Return a task for an SDK."""
        return {**vars(task)}

    def _read(self, answer: dict[str, Any]) -> Seen:
        """Take what is on the exception; where an SDK has no attributes for code and type, its `body` has them."""
        body = json.loads(answer.get("body") or "null") or {}
        inside = body.get("error", body) if isinstance(body, dict) else {}
        inside = inside if isinstance(inside, dict) else {}
        return Seen(
            raised=answer.get("error") or "",
            status=answer.get("status"),
            code=answer.get("code") or inside.get("code"),
            kind=answer.get("kind") or inside.get("type"),
            text=answer["text"],
            finish=answer.get("finish"),
            headers=answer.get("headers") or {},
            sleeps=tuple(answer["sleeps"]),
        )


def documents(body: str) -> list[dict[str, Any]]:
    """Return the JSON objects of a body: itself, or those of its events; what has broken off is none."""
    if not body.lstrip().startswith(("data:", "event:", ":")):
        return [json.loads(body)] if body.startswith("{") else []
    lines = (line.removeprefix("data:").strip() for line in body.splitlines() if line.startswith("data:"))
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def start(name: str) -> Client:
    """Start a client by its name in `table`."""
    if name in SDKS:
        return Sdk(name, *SDKS[name])
    return Client(name, PLAIN_COMMANDS[name]())
