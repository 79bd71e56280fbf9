"""The real process: what it prints, how it ends, how much memory it takes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.api.replica import ReplicaSettings

RUN = "import os, sys; from penstock.limiter.app import run; sys.exit(run(os.environ))"
IDLE_RSS_LIMIT_MEBIBYTES = 80


def rss_mebibytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


@asynccontextmanager
async def process(environ: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RUN, env={**environ, "PYTHONPATH": path}, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


@pytest.fixture
async def served(settings: ReplicaSettings, engine_at) -> AsyncIterator:
    """A limiter process in front of an engine in this process."""
    engine = await engine_at(settings.engine_port)
    async with process(settings.to_env()) as child:
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", settings.admin_port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
            if answer.startswith(b"HTTP/1.1 200"):
                break
            await asyncio.sleep(0.05)
        yield child, engine, settings
    await engine.stop()


async def test_sigterm_ends_open_streams_with_an_error_and_the_process_soon(served) -> None:
    child, engine, settings = served
    hold = asyncio.Event()

    async def stream(call) -> None:
        await call.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n: \n\n\r\n"
        )
        await hold.wait()

    engine.script = stream
    reader, writer = await asyncio.open_connection("127.0.0.1", settings.api_port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
    await reader.readuntil(b": \n\n\r\n")
    child.send_signal(signal.SIGTERM)
    async with asyncio.timeout(5):
        rest = await reader.read()
        assert await child.wait() == 0
    writer.close()
    assert b'"code": "draining"' in rest
    assert rest.endswith(b"0\r\n\r\n")
    assert b"Traceback" not in await child.stderr.read()


async def test_an_idle_limiter_is_small_and_says_no_secret(served) -> None:
    child, _, settings = served
    assert rss_mebibytes(child.pid) < IDLE_RSS_LIMIT_MEBIBYTES
    child.send_signal(signal.SIGTERM)
    log = (await child.communicate())[1].decode()
    assert "listening" in log
    assert settings.drain_token_sha256 not in log
    assert "Traceback" not in log


async def test_a_wrong_environment_is_one_sentence_and_status_2() -> None:
    async with process({"PENSTOCK_ENGINE_TYPE": "VLLM"}) as child:
        _, stderr = await child.communicate()
        assert child.returncode == 2
        assert b"PENSTOCK_BACKEND_NAME is missing" in stderr
        assert b"Traceback" not in stderr


async def test_a_taken_port_is_one_sentence_and_status_3(settings: ReplicaSettings) -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "0.0.0.0", settings.api_port)
    async with server, process(settings.to_env()) as child:
        _, stderr = await child.communicate()
        assert child.returncode == 3
        assert b"cannot listen" in stderr
        assert b"Traceback" not in stderr
