"""Two limiter processes and one store: what all clients together get is the limit, and not one for each process."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis

from penstock.api.replica import ReplicaSettings

CLIENTS = 50
CHAT = "/v1/chat/completions"
PATIENCE_SECONDS = 60.0
ESTIMATE_TOKENS = 200
LARGEST_ERROR_TOKENS = 20
# On a busy machine 20 ms may pass without anybody's fault, and then each grants its share: tested apart.
PROGRAM = """
from penstock.cli.main import main
from penstock.limiter import sharedstore

sharedstore.BUDGET_SECONDS = 10.0
main()
"""
BODY = json.dumps({"prompt": "x" * 360, "max_tokens": 100}).encode()


async def ask(port: int, raw: bytes) -> int:
    """Return the status of the answer."""
    return (await exchange(port, raw))[0]


async def exchange(port: int, raw: bytes) -> tuple[int, bytes]:
    """Return status and body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(raw)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        return int(head[9:12]), await reader.readexactly(int(length[1]) if length else 0)
    finally:
        writer.close()


def request(method: str, path: str, body: bytes = b"") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def until_ready(settings: ReplicaSettings) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                _, state = await exchange(settings.admin_port, request("GET", "/state"))
                if json.loads(state)["ready"] and json.loads(state)["store"]["inUse"]:
                    return
            except OSError:
                pass
            await asyncio.sleep(0.05)


@pytest.fixture
def replicas(settings: ReplicaSettings, free_ports, redis_server, tmp_path: Path):
    """Start two replicas with a quota, in front of one engine."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(quota: dict[str, object]) -> list[ReplicaSettings]:
        (tmp_path / "store").write_text(redis_server.url)
        Path(settings.policy_path).write_text(json.dumps({"admission": {"rateLimits": [quota]}, "replicas": 2}))
        found = []
        for _ in range(2):
            ports = {"api_port": free_ports(), "admin_port": free_ports(), "store_url_path": str(tmp_path / "store")}
            one = settings.model_copy(update=ports)
            environment = {**os.environ, **one.to_env(), "PYTHONPATH": os.pathsep.join(sys.path)}
            with (tmp_path / f"log-{one.api_port}").open("wb") as log:
                command = [sys.executable, "-c", PROGRAM, "limiter"]
                processes.append(subprocess.Popen(command, env=environment, stderr=log, stdout=log))
            found.append(one)
        return found

    yield start
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait(timeout=20)


@pytest.fixture
def free_ports():
    from socket import socket

    def port() -> int:
        with socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    return port


@pytest.mark.parametrize("algorithm", ["TokenBucket", "LeakyBucket", "FixedWindow", "SlidingWindow"])
@pytest.mark.parametrize(("unit", "limit"), [("Requests", 300), ("Tokens", 60_000)], ids=["requests", "tokens"])
async def test_fifty_clients_of_two_processes_get_one_limit(
    replicas, settings, redis_server, engine_at, algorithm: str, unit: str, limit: int
) -> None:
    with Redis(port=redis_server.port) as client:
        client.flushall()
    dice = random.Random(7)
    spent: list[int] = []

    async def answer(call) -> None:
        truth = ESTIMATE_TOKENS + dice.randint(-LARGEST_ERROR_TOKENS, LARGEST_ERROR_TOKENS)
        spent.append(truth)
        body = json.dumps({"usage": {"prompt_tokens": 100, "completion_tokens": truth - 100}}).encode()
        await asyncio.sleep(dice.uniform(0, 0.02))
        await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    engine = await engine_at(settings.engine_port)
    engine.script = answer
    quota = {"name": "q", "unit": unit, "algorithm": algorithm, "limit": limit, "windowSeconds": 86_400}
    both = replicas(quota)
    try:
        await asyncio.gather(*(until_ready(one) for one in both))

        async def client(number: int) -> None:
            port = both[number % 2].api_port
            while await ask(port, request("POST", CHAT, BODY)) == 200:
                pass

        if algorithm == "LeakyBucket":  # at this pace the second request waits for minutes, and is refused
            statuses = [await ask(both[number % 2].api_port, request("POST", CHAT, BODY)) for number in range(6)]
            assert statuses == [200] + [429] * 5
            return
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    finally:
        await engine.stop()
    if unit == "Requests":
        assert len(spent) == limit
    else:
        assert limit - 2 * ESTIMATE_TOKENS < sum(spent) <= limit + CLIENTS * LARGEST_ERROR_TOKENS
