"""One server process: the socket, uvicorn, the engine's task, signals and the end.

The port is bound at once but refuses connections until the engine is ready, as vLLM's does. On SIGTERM the engine ends
at once, or, with `--shutdown-timeout`, has that long to finish what it has; during that time the port stays open,
`/health` goes on saying 200 and new requests get a 500, exactly as observed on vLLM 0.32. An engine that dies on its
own takes the process with it: exit status 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from e2e.fakevllm.engine import Clock, Engine, Limits
from e2e.fakevllm.faults import Faults, Kind
from e2e.fakevllm.metrics import Metrics, Version
from e2e.fakevllm.sampler import Sampler
from e2e.fakevllm.service import Service
from e2e.fakevllm.tokenizer import Tokenizer
from e2e.fakevllm.web import Application
from e2e.fakevllm.wire.host import Host
from e2e.fakevllm.wire.rendering import Model

DEATH_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the command line and the environment decide."""

    model: Model
    limits: Limits
    clock: Clock = field(default_factory=Clock)
    version: str = "0.32.0"
    host: str = "0.0.0.0"
    port: int = 8000
    api_keys: tuple[str, ...] = ()
    max_queued_requests: int | None = None
    max_queued_tokens: int | None = None
    shutdown_seconds: float = 0.0
    keep_alive_seconds: float = 0.0
    idle_seconds: int = 5
    start_seconds: float = 0.0
    cached_tokens: bool = False
    always_usage: bool = False
    access_log: bool = True

    @property
    def version_pair(self) -> Version:
        """Major and minor number."""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers; ours decide when to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def printable_tokens(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of tokens that spell printable ASCII."""
    texts = {number: tokenizer.token_bytes(number) for number in range(tokenizer.vocabulary_size)}
    special = set(tokenizer.special.values())
    return [
        number
        for number, text in texts.items()
        if number not in special and all(byte in (10, *range(32, 127)) for byte in text)
    ]


def cache_info(limits: Limits) -> dict[str, str]:
    """Return the labels of `cache_config_info` that mean something here."""
    tokens = limits.blocks * limits.block_size
    return {
        "block_size": str(limits.block_size),
        "cache_dtype": "auto",
        "enable_prefix_caching": str(limits.caching),
        "engine": "0",
        "gpu_memory_utilization": "0.92",
        "kv_cache_max_concurrency": str(tokens / limits.max_model_tokens),
        "kv_cache_size_tokens": str(tokens),
        "num_gpu_blocks": str(limits.blocks),
    }


def assemble(settings: Settings, faults: Faults) -> tuple[Service, Application]:
    """Build the engine side and the HTTP side of a server."""
    tokenizer = settings.model.tokenizer
    engine = Engine(settings.limits, Sampler(printable_tokens(tokenizer), tokenizer.vocabulary_size))
    metrics = Metrics(
        version=settings.version_pair,
        model=settings.model.names[0],
        engine=engine,
        cache_info=cache_info(settings.limits),
    )
    service = Service(
        engine=engine,
        tokenizer=tokenizer,
        clock=settings.clock,
        metrics=metrics,
        faults=faults,
        max_queued_requests=settings.max_queued_requests,
        max_queued_tokens=settings.max_queued_tokens,
    )
    host = Host(
        model=settings.model,
        service=service,
        fingerprint=f"vllm-{settings.version}-fa4e0000",
        cached_tokens=settings.cached_tokens,
        always_usage=settings.always_usage,
    )
    application = Application(
        host,
        version=settings.version,
        api_keys=settings.api_keys,
        keep_alive_seconds=settings.keep_alive_seconds,
    )
    return service, application


class Process:
    """Runs one server until a signal or its engine's death.

    Args:
        settings: What to serve and how.
        faults: What goes wrong.
    """

    def __init__(self, settings: Settings, faults: Faults) -> None:
        self._settings = settings
        self._faults = faults
        self._service, self._application = assemble(settings, faults)
        self._server = self._make_server()
        self._tasks: set[asyncio.Task[None]] = set()

    def _make_server(self) -> _Server:
        config = uvicorn.Config(
            self._application,
            http="httptools",
            lifespan="on",
            log_level="info",
            access_log=self._settings.access_log,
            timeout_keep_alive=self._settings.idle_seconds,
        )
        return _Server(config)

    async def run(self) -> None:
        """Serve; returns when the process should end."""
        settings = self._settings
        sock = self._bind()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lambda: self._spawn(self._drain()))
        self._service.on_death = lambda: self._spawn(self._fall())
        self._application.on_refuse = lambda seconds: self._spawn(self._refuse(seconds))
        slow = self._faults.get(Kind.SLOW_START)
        await asyncio.sleep(settings.start_seconds + (slow.seconds if slow else 0.0))
        engine = asyncio.create_task(self._service.run())
        engine.add_done_callback(_report)
        print(f"serving {settings.model.names[0]} as vLLM {settings.version} on port {settings.port}", file=sys.stderr)
        await self._server.serve(sockets=[sock])
        engine.cancel()

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._settings.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((self._settings.host, self._settings.port))
        return sock

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drain(self) -> None:
        if self._service.draining:
            return
        self._service.draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.shutdown_seconds):
                await self._service.idle()
                # The engine has finished; what it said last may still be on its way to the clients.
                self._server.should_exit = True
                await asyncio.Event().wait()
        self._stop()

    def _stop(self) -> None:
        self._server.should_exit = True
        self._server.force_exit = True

    async def _fall(self) -> None:
        await asyncio.sleep(DEATH_SECONDS)
        self._stop()

    async def _refuse(self, seconds: float) -> None:
        """Close the port for a while: new connections are refused, open ones go on."""
        for listener in self._server.servers:
            listener.close()
        await asyncio.sleep(seconds)
        sock = self._bind()
        loop = asyncio.get_running_loop()
        config, state = self._server.config, self._server.server_state
        self._server.servers = [
            await loop.create_server(
                lambda: config.http_protocol_class(config=config, server_state=state, app_state={}),  # type: ignore[call-arg]
                sock=sock,
                backlog=config.backlog,
            )
        ]


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        print(f"fakevllm: the engine's task failed: {error!r}", file=sys.stderr)
        raise error
