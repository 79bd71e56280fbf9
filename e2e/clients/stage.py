"""What a scene plays on: replicas with different policies, and one client that is their user.

Replicas are started when a scene first needs them and stay for the others. Every client is a tenant with a key of its
own, and where quotas matter a tenant per scene, so that no scene is the retry or the quota of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from e2e.clients.client import Client, Do, Seen, Task
from e2e.clients.replica import LONG_ANSWER_TOKENS, MODEL, Replica, replica, stand_in
from e2e.clients.scripted import ScriptedEngine
from e2e.clients.tap import Tap, Try

HOLDER = "holder"
"""The tenant whose long answer fills a replica."""

ANSWER_TOKENS = 12
QUOTA_SECONDS = 3
VOLUME_TOKENS = 1000
HOUR_SECONDS = 3600
ONE_AT_A_TIME: dict[str, Any] = {"concurrency": {"maximum": 1}}
FULL = {**ONE_AT_A_TIME, "queue": {"maxRequests": 0}}
PACE = {"name": "pace", "limit": 1, "windowSeconds": QUOTA_SECONDS}
TOKENS = {"name": "volume", "unit": "Tokens", "limit": VOLUME_TOKENS, "windowSeconds": QUOTA_SECONDS}
HOUR = {"name": "hour", "limit": 1, "windowSeconds": HOUR_SECONDS}
QUOTAS = [
    {"name": "brief", "tenants": ["brief-*"], "rateLimits": [PACE, TOKENS]},
    {"name": "hourly", "tenants": ["hourly-*"], "rateLimits": [HOUR]},
]
ADMISSION: dict[str, dict[str, Any]] = {
    "open": {},
    "quotas": {},
    "full": FULL,
    "full-429": {**FULL, "overloadStatus": "TooManyRequests"},
    "no-retries": {**FULL, "retryBudgetPercent": 0},
    "queue": {**ONE_AT_A_TIME, "queue": {"maxRequests": 10}},
    "draining": {},
    "scripted": {},
}
"""What each replica admits."""


def key_of(tenant: str) -> str:
    """Return a tenant's API key."""
    return f"sk-{tenant}"


class Replicas:
    """The replicas, each started on first use; a context manager that ends them.

    Attributes:
        scripted: The engine behind the replica of that name; the others have the stand-in for vLLM.
    """

    def __init__(self, folder: Path, tenants: tuple[str, ...]) -> None:
        """Prepare them.

        Args:
            folder: For their files.
            tenants: All that have keys.
        """
        self._folder = folder
        self._keys = {tenant: key_of(tenant) for tenant in (*tenants, HOLDER)}
        self._stack = ExitStack()
        self._running: dict[str, Replica] = {}
        self.scripted = ScriptedEngine()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def get(self, name: str) -> Replica:
        """Return the replica with the policy of that name."""
        if name not in self._running:
            folder = self._folder / name
            folder.mkdir()
            policy = {"admission": ADMISSION[name], "tenants": {"identifyBy": "ApiKey", "classes": QUOTAS}}
            if name == "scripted":
                port = self._stack.enter_context(self.scripted).port
            else:
                port = self._stack.enter_context(stand_in(folder))
            limiter = replica(folder, engine_port=port, policy=policy, keys=self._keys)
            running = self._stack.enter_context(limiter)
            if name == "draining":
                self._stack.enter_context(running.occupied(key_of(HOLDER)))
                running.start_drain()
            self._running[name] = running
        return self._running[name]


@dataclass
class Play:
    """What came of a scene: what the client saw, and what passed on the wire where a tap was there."""

    seen: Seen
    tries: list[Try]
    pauses: list[float]


@dataclass
class Stage:
    """One client on the stage.

    Attributes:
        client: It.
        replicas: Where it can go.
        scene: Name of the scene, which is part of the prompt: no other request has its body.
    """

    client: Client
    replicas: Replicas
    scene: str

    def task(self, url: str, *, do: Do = Do.WHOLE, body: Mapping[str, Any] | None = None, **more: Any) -> Task:
        """Return an ordinary task at a URL, with changes.

        Args:
            url: Of a replica or a tap.
            do: What is done with the answer.
            body: Arguments that differ from the ordinary ones.
            more: Other attributes of the task that do.
        """
        tokens = LONG_ANSWER_TOKENS if do is Do.LEAVE else ANSWER_TOKENS
        ordinary: dict[str, Any] = {
            "model": MODEL,
            "messages": [{"role": "user", "content": f"Play {self.scene}."}],
            "max_tokens": tokens,
            "temperature": 0.0,
        }
        key = more.pop("key", key_of(self.client.name))
        return Task(url=url, key=key, do=do, body={**ordinary, **(body or {})}, **more)

    def ask(self, name: str, **changes: Any) -> Play:
        """Ask a replica directly, and see that all permits come back."""
        running = self.replicas.get(name)
        seen = self.client.ask(self.task(running.url, **changes))
        running.settle()
        return Play(seen, [], [])

    def use_up(self, key: str) -> None:
        """Use a quota up that has room for one request."""
        seen = self.client.ask(self.task(self.replicas.get("quotas").url, key=key, body={"max_tokens": 1}))
        assert seen.status == 200

    def ask_through_tap(self, name: str, **changes: Any) -> Play:
        """Ask a replica, and note what passes."""
        with Tap(self.replicas.get(name).url) as tap:
            seen = self.client.ask(self.task(tap.url, **changes))
            return Play(seen, tap.tries, tap.pauses())
