"""Where the measurements take place: an engine and a limiter as processes, each at a core of its own choosing.

The limiter has a core to itself; engine and load share the other.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.limiter.replica import HOST, SOURCE_ROOT, Place, Policy, place, process
from bench.relay.processes import BenchError, Pinned, free_ports, two_cores
from penstock.api.engine import EngineType

START_SECONDS = 20.0
ROOT = SOURCE_ROOT.parent


@dataclass(frozen=True)
class Bed:
    """A limiter that runs, and its engine."""

    where: Place
    limiter: Pinned
    engine: Pinned

    def engine_counts(self) -> dict[str, int]:
        """Return what the engine has counted."""
        return counts_of(self.where.engine_port)

    def descriptors(self) -> int:
        """Return how many descriptors the limiter has open."""
        return len(list(Path(f"/proc/{self.limiter.tree()[-1]}/fd").iterdir()))


@contextmanager
def bed(
    policy: Policy,
    *,
    concurrency: int = 4096,
    slots: int | None = None,
    tenants: Mapping[str, str] | None = None,
    wrapped_by: tuple[str, ...] = (),
    memory_bytes: int | None = None,
) -> Iterator[Bed]:
    """Run an engine and a limiter until the block ends; with `slots` the engine is llama.cpp and has so many."""
    allow_many_files()
    proxy_core, load_core = two_cores()
    (engine_port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="penstock-limiter-") as name:
        folder = Path(name)
        where = place(
            folder / "limiter",
            engine_port=engine_port,
            policy=policy,
            concurrency=slots or concurrency,
            engine_type=EngineType.LLAMA_CPP if slots else EngineType.VLLM,
            tenants=tenants,
            memory_bytes=memory_bytes,
        )
        with (
            running_engine(engine_port, load_core, folder, slots=slots) as engine,
            process(where, core=proxy_core, wrapped_by=wrapped_by) as limiter,
            _at(load_core),
        ):
            yield Bed(where, limiter, engine)


@contextmanager
def running_engine(port: int, core: int, folder: Path, *, slots: int | None = None) -> Iterator[Pinned]:
    """Run `bench.limiter.engine` until the block ends."""
    argv = [sys.executable, "-m", "bench.limiter.engine", port, *(("--slots", slots) if slots else ())]
    environment = {"PYTHONPATH": f"{SOURCE_ROOT}{os.pathsep}{ROOT}"}
    with Pinned("engine", argv, core=core, folder=folder, environment=environment) as engine:
        deadline = time.monotonic() + START_SECONDS
        while True:
            engine.check_alive()
            with suppress(OSError):
                counts_of(port)
                break
            if time.monotonic() > deadline:
                raise BenchError(f"the engine does not answer:\n{engine.log_tail()}")
            time.sleep(0.05)
        yield engine


def counts_of(port: int) -> dict[str, int]:
    """Return what an engine has counted."""
    with urllib.request.urlopen(f"http://{HOST}:{port}/counts", timeout=10) as answer:
        found: dict[str, int] = json.loads(answer.read())
        return found


@contextmanager
def _at(core: int) -> Iterator[None]:
    """Give this process, which is the load, a core, and the right to go first where that is allowed."""
    cores, policy, priority = os.sched_getaffinity(0), os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setaffinity(0, {core})
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        os.sched_setscheduler(0, policy, priority)


def allow_many_files() -> None:
    """Raise the soft limit of open files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def rate_limit(name: str, unit: str, algorithm: str, limit: int, **more: Any) -> dict[str, Any]:
    """Return a quota as the policy has it."""
    return {"name": name, "unit": unit, "algorithm": algorithm, "limit": limit, "per": "Replica", **more}
