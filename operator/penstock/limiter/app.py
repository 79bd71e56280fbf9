"""The limiter's process: environment in, exit status out."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import resource
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from penstock.api.errors import PenstockError
from penstock.api.policy import Policy
from penstock.api.replica import ReplicaSettings
from penstock.engines.engine import for_type
from penstock.limiter.limiter import Limiter
from penstock.limiter.loop import Loop

logger = logging.getLogger("penstock.limiter")

EXIT_CONFIGURATION = 2
EXIT_PORT = 3
M_MMAP_THRESHOLD = -3  # of mallopt(3)
MAPPED_BLOCK_BYTES = 128 * 1024
BODY_BUDGET_SHARE = 0.4
BODY_BUDGET_DEFAULT_BYTES = 256 * 1024 * 1024
MEMORY_LIMIT_FILE = Path("/sys/fs/cgroup/memory.max")


def run(environ: Mapping[str, str]) -> int:
    """Run the limiter until SIGTERM and return the exit status.

    Policy files never end it. Wrong environment variables do: they are part of the pod's template, so only a new pod
    can have other ones, and a container that does not start shows the sentence to whoever looks.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s level=%(levelname)s logger=%(name)s %(message)s"
    )
    try:
        settings = ReplicaSettings.from_env(environ)
    except PenstockError as error:
        logger.error("cannot start: %s", error)
        return EXIT_CONFIGURATION
    _allow_many_connections()
    _give_memory_back()
    try:
        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(_serve(settings))
    except OSError as error:
        logger.error("cannot listen: %s", error)
        return EXIT_PORT
    return 0


def body_budget_bytes(limit_file: Path = MEMORY_LIMIT_FILE, *, limit_bytes: int | None = None) -> int:
    """Return how much memory request bodies may take together: 40 % of the container's limit, 256 MiB without one.

    Args:
        limit_file: Where cgroup v2 tells a container its limit; cgroup v1 has no such file.
        limit_bytes: The limit, when the pod's template says it.
    """
    if limit_bytes is not None:
        return int(limit_bytes * BODY_BUDGET_SHARE)
    try:
        limit = limit_file.read_text().strip()
    except OSError:
        return BODY_BUDGET_DEFAULT_BYTES
    return int(int(limit) * BODY_BUDGET_SHARE) if limit.isdigit() else BODY_BUDGET_DEFAULT_BYTES


async def _serve(settings: ReplicaSettings) -> None:
    facts = for_type(settings.engine_type).facts
    budget = body_budget_bytes(limit_bytes=settings.memory_limit_bytes)
    limiter = Limiter(settings, facts=facts, body_budget_bytes=budget, on_policy=_set_log_level)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, limiter.terminate)
    gc.freeze()  # what start-up made lives as long as the process: no collection needs to look at it again
    await limiter.run()


def _allow_many_connections() -> None:
    """Raise the soft limit of open files to the hard one: every stream takes two, and the usual limit is 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _give_memory_back() -> None:
    """Map every block of 128 KiB and more on its own for good, so that it goes back to the system when it is freed.

    glibc otherwise takes ever larger blocks from its heap once some were freed, and keeps what bodies have left there.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, MAPPED_BLOCK_BYTES)


def _set_log_level(policy: Policy) -> None:
    logging.getLogger("penstock").setLevel(policy.log_level.upper())
