"""A limiter on loopback in front of an engine that does what a test's script says."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import itertools
import json
import os
import random
import re
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from e2e.redisserver import RedisServer
from penstock.api.engine import EngineType
from penstock.api.replica import ReplicaSettings
from penstock.engines.engine import for_type
from penstock.limiter.lanes import PythonLanes
from penstock.limiter.limiter import Limiter
from penstock.limiter.loop import Loop
from penstock.limiter.nativelanes import NativeLanes
from penstock.limiter.service import Times

TOKEN = "the-drain-token"
CHAT = "/v1/chat/completions"
FIXTURES = Path(__file__).parent / "fixtures"
PATIENCE_SECONDS = 10.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

Script = Callable[["Call"], Awaitable[None]]


_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PORTS = range(10_000, 32_000)[_WORKER % 16 :: 16]  # workers must not take each other's
_ports = itertools.cycle(random.SystemRandom().sample(_PORTS, len(_PORTS)))


def free_port() -> int:
    """Return a port that nobody listens on, below those from which connections that are opened get theirs.

    A port comes back only after all others: nobody may listen yet on the ones that were returned before.
    """
    for port in _ports:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("the ports never end")


@dataclasses.dataclass
class Call:
    """One request as the engine saw it."""

    head: bytes
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def header(self, name: str) -> str | None:
        found = re.search(rb"(?im)^%b: *(.*?)\r$" % name.encode(), self.head)
        return found[1].decode() if found else None

    async def client_left(self) -> None:
        """Wait until the limiter has closed this connection."""
        with suppress(ConnectionError):
            while await self.reader.read(1000):
                pass


class Engine:
    """Answers health and metrics itself, everything else by `script`."""

    def __init__(self) -> None:
        self.script: Script = answer_ok
        self.health = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        self.metrics = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nseries 1\n"
        self.calls: list[Call] = []
        self.connections = 0
        self.health_calls = 0
        self.port = free_port()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=64 * 1024 * 1024)

    @property
    def started(self) -> bool:
        return self._server is not None

    async def stop(self) -> None:
        """Be gone, as a process that was killed."""
        assert self._server is not None
        await asyncio.sleep(0.02)  # what was accepted last has no transport yet, and a closed server gives it none
        self._server.close()
        self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports close their sockets in a later turn

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET /health "):
            self.health_calls += 1
            writer.write(self.health)
            return True
        if head.startswith(b"GET /metrics "):
            writer.write(self.metrics)
            return True
        length = re.search(rb"(?i)content-length: (\d+)", head)
        body = await reader.readexactly(int(length[1])) if length else b""
        call = Call(head, body, reader, writer)
        self.calls.append(call)
        await self.script(call)
        return not writer.is_closing()


async def answer_ok(call: Call) -> None:
    await call.send(OK)


class Hold:
    """Lets the engine answer one request after the other."""

    def __init__(self, answer: Script) -> None:
        self.calls: list[Call] = []
        self._answer = answer
        self._gates: list[asyncio.Event] = []

    async def __call__(self, call: Call) -> None:
        gate = asyncio.Event()
        self.calls.append(call)
        self._gates.append(gate)
        await gate.wait()
        await self._answer(call)

    @property
    def bodies(self) -> list[bytes]:
        return [call.body for call in self.calls]

    def answer(self, number: int) -> None:
        """Let the request that came as this number be answered."""
        self._gates[number].set()


@dataclasses.dataclass
class Reply:
    """A response as a client saw it; `body` is what came after the head until the end of its framing."""

    status: int
    head: bytes
    body: bytes

    def header(self, name: str) -> str | None:
        found = re.search(rb"(?im)^%b: *(.*?)\r$" % name.encode(), self.head)
        return found[1].decode() if found else None

    @property
    def error(self) -> dict[str, object]:
        error: dict[str, object] = json.loads(self.body)["error"]
        return error


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        with suppress(ConnectionError):
            await self.writer.drain()

    async def reply(self) -> Reply:
        async with asyncio.timeout(PATIENCE_SECONDS):
            head = await self.reader.readuntil(b"\r\n\r\n")
            reply = Reply(int(head[9:12]), head, b"")
            length = reply.header("content-length")
            if length is not None:
                reply.body = await self.reader.readexactly(int(length))
            elif (reply.header("transfer-encoding") or "").lower() == "chunked":
                reply.body = await self._chunks()
            elif reply.status >= 200:
                reply.body = await self.reader.read()
            return reply

    async def rest(self) -> bytes:
        """Everything until the connection ends."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.reader.read()

    async def _chunks(self) -> bytes:
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += await self.reader.readexactly(size)
            assert await self.reader.readexactly(2) == b"\r\n"
        assert await self.reader.readline() == b"\r\n"
        return body

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        self.writer.transport.abort()

    def reset(self) -> None:
        """Leave in a way that nobody takes for having stopped to send."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class Rig:
    """Engine, limiter and clients."""

    def __init__(self, engine: Engine, limiter: Limiter, settings: ReplicaSettings) -> None:
        self.engine = engine
        self.limiter = limiter
        self.settings = settings
        self.token = TOKEN
        self._clients: list[Client] = []

    async def connect(self, port: int | None = None, *, limit: int = 1 << 26) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", port or self.settings.api_port, limit=limit))
        self._clients.append(client)
        return client

    async def ask(self, raw: bytes, *, port: int | None = None) -> Reply:
        client = await self.connect(port)
        await client.send(raw)
        return await client.reply()

    async def post(self, body: bytes = b"{}", *, path: str = CHAT, headers: str = "") -> Reply:
        return await self.ask(self.post_bytes(body, path=path, headers=headers))

    async def begin(self, body: bytes = b"{}", *, path: str = CHAT, headers: str = "") -> Client:
        """Send a request and do not wait for its answer."""
        client = await self.connect()
        await client.send(self.post_bytes(body, path=path, headers=headers))
        return client

    async def queue(self, body: bytes = b"{}", *, path: str = CHAT, headers: str = "") -> Client:
        """Send a request that has to wait."""
        before = len(self.limiter.admission.room)
        client = await self.begin(body, path=path, headers=headers)
        await self.until(lambda: len(self.limiter.admission.room) == before + 1)
        return client

    def hold(self, answer: Script = answer_ok) -> Hold:
        """Let the engine answer only when it is told to."""
        self.engine.script = held = Hold(answer)
        return held

    def set_policy(self, **policy: object) -> None:
        """Put another policy in force."""
        Path(self.settings.policy_path).write_text(json.dumps(policy))
        self.limiter.refresh_policy()
        assert self.limiter.policy.problem is None

    @staticmethod
    def post_bytes(body: bytes = b"{}", *, path: str = CHAT, headers: str = "") -> bytes:
        return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body

    async def admin(self, path: str, *, headers: str = "") -> Reply:
        raw = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n".encode()
        return await self.ask(raw, port=self.settings.admin_port)

    async def drain(self) -> Reply:
        return await self.admin("/drain", headers=f"x-penstock-drain-token: {self.token}\r\n")

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():  # noqa: ASYNC110 - most conditions are plain state without an event
                await asyncio.sleep(0.005)

    async def ready(self) -> None:
        await self.until(lambda: not self.limiter.not_ready())

    async def settled(self) -> None:
        """Nothing in flight, no drift."""
        admission, relay = self.limiter.admission, self.limiter.relay
        books = admission.gate.books
        await self.until(
            lambda: not (books.in_flight or len(admission.room) or relay.exchanges or relay.budget.held_bytes)
        )
        assert books.drift == 0

    def close_clients(self) -> None:
        for client in self._clients:
            client.abort()


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], object]]:
    """Run on the loop that serves in production; what is about lanes runs on both kinds of them."""
    if item.path.name == "test_selector.py":
        return {"native": partial(Loop, lanes=NativeLanes), "python": partial(Loop, lanes=PythonLanes)}
    return {"limiter": Loop}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> Iterator[None]:
    """Take back what looptime does to every loop, used or not: it replaces `time` and `select`."""
    result = yield
    if isinstance(result, asyncio.Runner) and isinstance(loop := result.get_loop(), Loop):
        loop.__class__ = Loop
        vars(loop.direct).pop("select", None)
    return result


FAST = Times(
    idle_seconds=5.0,
    head_seconds=0.4,
    body_step_seconds=0.4,
    write_stall_seconds=5.0,
    linger_seconds=5.0,
    linger_silence_seconds=0.5,
)


@pytest.fixture
def settings(tmp_path: Path) -> ReplicaSettings:
    policy = tmp_path / "policy.json"
    policy.write_text('{"maximumBodyMebibytes": 1}')
    return ReplicaSettings(
        backend_name="demo",
        backend_namespace="default",
        backend_uid="uid",
        engine_type=EngineType.VLLM,
        engine_port=free_port(),
        api_port=free_port(),
        admin_port=free_port(),
        served_names=("demo",),
        lame_duck_seconds=0,
        drain_timeout_seconds=5,
        drain_token_sha256=hashlib.sha256(TOKEN.encode()).hexdigest(),
        policy_path=str(policy),
    )


@pytest.fixture
async def rig(settings: ReplicaSettings) -> AsyncIterator[Rig]:
    """A ready replica."""
    async with run_rig(settings) as rig:
        await rig.ready()
        yield rig


@pytest.fixture
async def cold_rig(settings: ReplicaSettings) -> AsyncIterator[Rig]:
    """A replica whose engine is not running; `await rig.engine.start()` starts it."""
    async with run_rig(settings, start_engine=False) as rig:
        yield rig


@pytest.fixture
async def impatient_rig(settings: ReplicaSettings) -> AsyncIterator[Rig]:
    """A replica that gives up idle clients, and those that do not read, after a fraction of a second."""
    times = dataclasses.replace(
        FAST, idle_seconds=0.3, write_stall_seconds=0.3, linger_seconds=0.6, linger_silence_seconds=0.2
    )
    async with run_rig(settings, times=times) as rig:
        await rig.ready()
        yield rig


@asynccontextmanager
async def run_rig(
    settings: ReplicaSettings, *, start_engine: bool = True, times: Times = FAST, poll_seconds: float = 0.2
) -> AsyncIterator[Rig]:
    engine = Engine()
    engine.port = settings.engine_port
    if start_engine:
        await engine.start()
    facts = dataclasses.replace(for_type(settings.engine_type).facts, poll_interval_seconds=poll_seconds)
    limiter = Limiter(settings, facts=facts, body_budget_bytes=64 * 1024 * 1024, times=times)
    running = asyncio.create_task(limiter.run(host="127.0.0.1"))
    rig = Rig(engine, limiter, settings)
    try:
        await rig.until(lambda: limiter.listening.is_set() or running.done())
        if not running.done():
            yield rig
    finally:
        rig.close_clients()
        limiter.stopped.set()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await running
        finally:
            if engine.started:
                await engine.stop()
    assert limiter.admission.gate.in_flight == 0
    assert limiter.admission.gate.books.drift == 0


@asynccontextmanager
async def ready_rig(settings: ReplicaSettings) -> AsyncIterator[Rig]:
    async with run_rig(settings) as rig:
        await rig.ready()
        yield rig


@pytest.fixture
def make_rig() -> Callable[..., AbstractAsyncContextManager[Rig]]:
    """For replicas with other settings."""
    return run_rig


@pytest.fixture
def open_rig(settings: ReplicaSettings) -> Callable[..., AbstractAsyncContextManager[Rig]]:
    """For ready replicas with an admission policy, tenants and settings of their own."""

    def run(
        *, tenants: dict[str, object] | None = None, settings_of: dict[str, object] | None = None, **admission: object
    ) -> AbstractAsyncContextManager[Rig]:
        policy = {"admission": admission} | ({"tenants": tenants} if tenants else {})
        Path(settings.policy_path).write_text(json.dumps(policy))
        return ready_rig(settings.model_copy(update=settings_of or {}))

    return run


@pytest.fixture
def engine_at() -> Callable[[int], Awaitable[Engine]]:
    """Start an engine on a port."""

    async def start(port: int) -> Engine:
        engine = Engine()
        engine.port = port
        await engine.start()
        return engine

    return start


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    """A real shared store on loopback."""
    server = RedisServer()
    server.start()
    yield server
    server.stop()
