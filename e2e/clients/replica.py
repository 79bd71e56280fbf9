"""One replica on loopback: a `penstock limiter` process in front of an engine, and what its admin port says."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.beside.installation import REPOSITORY
from e2e.beside.waiting import wait_for
from e2e.conformance.targets import argv, free_port, model_folder
from penstock.api.engine import EngineType
from penstock.api.policy import Policy
from penstock.api.replica import DRAIN_TOKEN_HEADER, ReplicaSettings

MODEL = "demo"
STEP_SECONDS = "0.02"
"""An engine step, so the time of one token: slow enough that something can happen in the middle of an answer."""

CONTEXT_TOKENS = 4096
LONG_ANSWER_TOKENS = 3500
"""More than a minute: longer than any scene."""

STOP_SECONDS = 20.0
DRAIN_TOKEN = "the-drain-token"


@dataclass
class Replica:
    """A running replica.

    Attributes:
        url: Where clients reach it.
        admin_port: Port of its probes, its drain and its metrics.
        engine_port: Port of the engine behind it.
    """

    url: str
    admin_port: int
    engine_port: int

    def state(self) -> dict[str, Any]:
        """Return `/state`."""
        found: dict[str, Any] = json.loads(_get(self.admin_port, "/state"))
        return found

    def metric(self, name: str) -> float:
        """Return the sum of the samples of a limiter's metric."""
        return _sum(_get(self.admin_port, "/metrics"), name)

    def is_ready(self) -> bool:
        """Return whether clients are served."""
        with contextlib.suppress(OSError):
            return _get(self.admin_port, "/readyz") == "ready\n"
        return False

    def settle(self) -> None:
        """Wait until every permit is back and the engine works on nothing; no permit is lost or made up."""
        wait_for(lambda: not self.state()["inFlight"] and not self.state()["waiting"], "return of all permits")
        wait_for(lambda: not _sum(_get(self.engine_port, "/metrics"), "vllm:num_requests_running"), "idle engine")
        assert self.state()["drift"] == 0

    @contextlib.contextmanager
    def faulty(self, **description: object) -> Iterator[None]:
        """Have a fault of the stand-in for vLLM for a while; see `e2e.fakevllm.faults`."""
        self._fault("POST", json.dumps(description).encode())
        try:
            yield
        finally:
            self._fault("DELETE", None)

    @contextlib.contextmanager
    def occupied(self, key: str) -> Iterator[None]:
        """Have one long answer running."""
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": "Tell a long story."}],
            "max_tokens": LONG_ANSWER_TOKENS,
            "ignore_eos": True,
            "stream": True,
        }
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        port = int(self.url.rpartition(":")[2])
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            with connection.getresponse() as answer:
                assert answer.status == 200, answer.read()
                assert answer.readline().startswith(b"data:")
                yield
        self.settle()

    def start_drain(self) -> None:
        """Ask for the drain, as the engine's preStop hook does, and wait for its beginning only."""
        with socket.create_connection(("127.0.0.1", self.admin_port)) as hook:
            hook.sendall(f"GET /drain HTTP/1.1\r\nHost: x\r\n{DRAIN_TOKEN_HEADER}: {DRAIN_TOKEN}\r\n\r\n".encode())
            wait_for(lambda: self.state()["drain"] == "draining", "drain")

    def _fault(self, method: str, data: bytes | None) -> None:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.engine_port, timeout=5)) as connection:
            connection.request(method, "/fault", data)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()


@contextlib.contextmanager
def stand_in(folder: Path) -> Iterator[int]:
    """Run the stand-in for vLLM and give its port."""
    port = free_port()
    flags = ["--served-model-name", MODEL, "--max-model-len", str(CONTEXT_TOKENS), "--disable-uvicorn-access-log"]
    command = argv("fakevllm", model_folder(), [*flags, "--host", "127.0.0.1", "--port", str(port)])
    with _process(command, {**os.environ, "FAKEVLLM_STEP_SECONDS": STEP_SECONDS}, folder / "engine.log"):
        yield port


@contextlib.contextmanager
def replica(folder: Path, *, engine_port: int, policy: Mapping[str, Any], keys: Mapping[str, str]) -> Iterator[Replica]:
    """Run a limiter in front of an engine, and wait until it is ready.

    Args:
        folder: An empty one for its files.
        engine_port: Where the engine listens.
        policy: Its `policy.json`.
        keys: The API key of each tenant.
    """
    names = folder / "tenants"
    names.mkdir()
    for tenant, key in keys.items():
        (names / tenant).write_text(key + "\n")
    written, unknown = Policy.parse(json.dumps(policy))
    assert not unknown, f"unknown keys: {unknown}"
    (folder / "policy.json").write_text(written.render())
    settings = ReplicaSettings(
        backend_name="demo",
        backend_namespace="default",
        backend_uid="uid",
        engine_type=EngineType.VLLM,
        engine_port=engine_port,
        api_port=free_port(),
        admin_port=free_port(),
        served_names=(MODEL,),
        context_length=CONTEXT_TOKENS,
        lame_duck_seconds=0,
        drain_token_sha256=hashlib.sha256(DRAIN_TOKEN.encode()).hexdigest(),
        policy_path=str(folder / "policy.json"),
        tenants_path=str(names),
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    environment |= {**settings.to_env(), "PYTHONPATH": str(REPOSITORY / "operator")}
    running = Replica(f"http://127.0.0.1:{settings.api_port}", settings.admin_port, engine_port)
    command = [sys.executable, "-m", "penstock", "limiter"]
    with _process(command, environment, folder / "limiter.log") as process:

        def ready() -> bool:
            assert process.poll() is None, (folder / "limiter.log").read_text()
            return running.is_ready()

        wait_for(ready, "ready replica")
        yield running


@contextlib.contextmanager
def _process(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that ends with this one, even when that is killed."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *command],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def _get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        text: str = answer.read().decode()
        return text


def _sum(exposition: str, name: str) -> float:
    return sum(
        float(line.rpartition(" ")[2])
        for line in exposition.splitlines()
        if line.partition("{")[0].partition(" ")[0] == name
    )
