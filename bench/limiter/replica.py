"""A limiter to be looked at: in this process, where its counts can be read, or as a process of its own.

Both get the environment that a pod would give them, and a policy file in a folder of the run.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.relay.processes import BenchError, Pinned, free_ports
from penstock.api.engine import EngineType
from penstock.api.replica import ReplicaSettings
from penstock.engines.engine import for_type
from penstock.limiter.limiter import Limiter
from penstock.limiter.service import Times

HOST = "127.0.0.1"
SOURCE_ROOT = Path(__file__).resolve().parents[2] / "operator"
START_SECONDS = 30.0
POLL_SECONDS = 0.05
STOP_SECONDS = 10.0
ADMIN_SECONDS = 10.0
BODY_BUDGET_BYTES = 64 * 1024 * 1024

Policy = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a limiter runs, and what it is told."""

    folder: Path
    engine_port: int
    port: int
    admin_port: int
    concurrency: int = 4096
    engine_type: EngineType = EngineType.VLLM
    tenants: Mapping[str, str] = field(default_factory=dict)
    """API keys by tenant."""
    memory_bytes: int | None = None
    """Its memory limit."""
    backend_uid: str = "00000000-0000-4000-8000-000000000000"
    pod_uid: str = "00000000-0000-4000-8000-000000000001"

    @property
    def policy_path(self) -> Path:
        """Return where its policy is read from."""
        return self.folder / "policy.json"

    def write_policy(self, policy: Policy) -> None:
        """Replace the policy in one step, as a mounted ConfigMap would be."""
        fresh = self.folder / "policy.new"
        fresh.write_text(json.dumps(policy))
        fresh.rename(self.policy_path)

    def environment(self) -> dict[str, str]:
        """Return the variables of a pod."""
        settings = {
            "BACKEND_NAME": "bench",
            "BACKEND_NAMESPACE": "default",
            "BACKEND_UID": self.backend_uid,
            "POD_UID": self.pod_uid,
            "ENGINE_TYPE": self.engine_type.value,
            "ENGINE_PORT": str(self.engine_port),
            "API_PORT": str(self.port),
            "ADMIN_PORT": str(self.admin_port),
            "SERVED_NAMES": "bench",
            "MAX_CONCURRENCY": str(self.concurrency),
            "LAME_DUCK_SECONDS": "0",
            "DRAIN_TIMEOUT_SECONDS": "1",
            "DRAIN_TOKEN_SHA256": hashlib.sha256(os.urandom(32)).hexdigest(),
            "POLICY_PATH": str(self.policy_path),
        }
        if self.memory_bytes is not None:
            settings["MEMORY_LIMIT_BYTES"] = str(self.memory_bytes)
        if self.tenants:
            keys = self.folder / "tenants"
            keys.mkdir(exist_ok=True)
            for name, key in self.tenants.items():
                (keys / name).write_text(f"{key}\n")
            settings["TENANTS_PATH"] = str(keys)
        return {f"PENSTOCK_{name}": value for name, value in settings.items()}


def place(
    folder: Path,
    *,
    engine_port: int,
    policy: Policy,
    concurrency: int = 4096,
    engine_type: EngineType = EngineType.VLLM,
    tenants: Mapping[str, str] | None = None,
    memory_bytes: int | None = None,
) -> Place:
    """Return a place with ports of its own, its policy written."""
    folder.mkdir(parents=True, exist_ok=True)
    port, admin_port = free_ports(2)
    made = Place(
        folder=folder,
        engine_port=engine_port,
        port=port,
        admin_port=admin_port,
        concurrency=concurrency,
        engine_type=engine_type,
        tenants=tenants or {},
        memory_bytes=memory_bytes,
    )
    made.write_policy(policy)
    return made


@asynccontextmanager
async def inside(
    where: Place, *, times: Times | None = None, body_budget_bytes: int = BODY_BUDGET_BYTES
) -> AsyncIterator[Limiter]:
    """Run a limiter on the running loop, ready, until the block ends."""
    settings = ReplicaSettings.from_env(where.environment())
    facts = for_type(settings.engine_type).facts
    limiter = Limiter(settings, facts=facts, body_budget_bytes=body_budget_bytes, times=times)
    running = asyncio.create_task(limiter.run(host=HOST))
    try:
        async with asyncio.timeout(START_SECONDS):
            while limiter.not_ready():
                if running.done():
                    running.result()
                await asyncio.sleep(POLL_SECONDS)
        yield limiter
    finally:
        limiter.stopped.set()
        async with asyncio.timeout(STOP_SECONDS):
            await running


@contextmanager
def process(where: Place, *, core: int, wrapped_by: tuple[str, ...] = ()) -> Iterator[Pinned]:
    """Run a limiter as a process of its own, ready, until the block ends.

    Args:
        where: What it is told.
        core: The only core it may use.
        wrapped_by: A command that is to start it.
    """
    argv = [*wrapped_by, sys.executable, "-m", "penstock", "limiter"]
    # Absolute, because the process starts in a folder of its own.
    environment = {**where.environment(), "PYTHONPATH": str(SOURCE_ROOT)}
    with Pinned("limiter", argv, core=core, folder=where.folder, environment=environment) as started:
        _wait_until_ready(where, started)
        yield started


def admin(where: Place, path: str) -> bytes:
    """Return what the admin port says."""
    url = f"http://{HOST}:{where.admin_port}{path}"
    with urllib.request.urlopen(url, timeout=ADMIN_SECONDS) as answer:
        body: bytes = answer.read()
        return body


def state(where: Place) -> dict[str, Any]:
    """Return the limiter's `/state`."""
    found: dict[str, Any] = json.loads(admin(where, "/state"))
    return found


def metrics(where: Place) -> dict[str, float]:
    """Return the limiter's own series, by their name with labels."""
    lines = admin(where, "/metrics").decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def _wait_until_ready(where: Place, started: Pinned) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        started.check_alive()
        try:
            admin(where, "/readyz")
        except (OSError, urllib.error.URLError):
            time.sleep(POLL_SECONDS)
        else:
            return
    raise BenchError(f"the limiter was not ready within {START_SECONDS:.0f} s:\n{started.log_tail()}")
