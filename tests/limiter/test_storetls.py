"""A store behind TLS that stops answering: neither its silence nor its missing farewell ends anything here."""

from __future__ import annotations

import asyncio
import socketserver
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.pki import Authority
from penstock.limiter.sharedstore import SharedStore
from penstock.limiter.storeurl import StoreUrl

PATIENCE_SECONDS = 10
ANSWERS = {b"PING": b"+PONG\r\n", b"SCRIPT": b"$40\r\n" + b"a" * 40 + b"\r\n"}


class Stub(socketserver.ThreadingTCPServer):
    """Answers what a store is asked before it is in use, until it hangs: then it does not even take a farewell."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(("localhost", 0), Handler)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.hangs, self.over = threading.Event(), threading.Event()
        self.url = StoreUrl.parse(f"rediss://localhost:{self.server_address[1]}/0")
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        self.over.set()
        self.shutdown()
        self.server_close()


class Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        server: Any = self.server
        while True:
            header = self.rfile.readline()
            if server.hangs.is_set():  # also where this is the other side's farewell
                server.over.wait(PATIENCE_SECONDS)
            if not header:
                return
            words = [self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2] for _ in range(int(header[1:]))]
            self.wfile.write(ANSWERS.get(words[0], b"+OK\r\n"))


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    authority = Authority(tmp_path)
    pair = authority.issue("server", common_name="store", hosts=["localhost"])
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    made: list[Stub] = []

    def make() -> Stub:
        made.append(Stub(context))
        return made[-1]

    yield make
    for one in made:
        one.stop()


async def test_a_store_that_hangs_when_it_is_no_longer_wanted_is_left_and_the_next_is_used(
    stub: Callable[[], Stub],
) -> None:
    hanging, working = stub(), stub()
    store = SharedStore(asyncio.get_running_loop())
    running = asyncio.create_task(store.run())

    async def in_use(url: StoreUrl) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (store.in_use and store.state()["url"] == url.shown):
                assert not running.done(), running
                await asyncio.sleep(0.01)

    try:
        store.use(hanging.url)
        await in_use(hanging.url)
        hanging.hangs.set()
        store.use(working.url)
        await in_use(working.url)
        hanging.over.set()
        await asyncio.sleep(0.1)  # the connection that was left ends
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
