"""A proxy before the API server that answers a share of all calls with an error of its own.

The operator reaches it over plain HTTP on loopback; it goes on to the API server with the operator's certificate, so
rights and audit stay what they are. Watches pass through byte by byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import threading
from pathlib import Path
from typing import Self

import aiohttp
import yaml
from aiohttp import web

from e2e.cluster.pki import KeyPair

STATUS = {
    409: ("Conflict", "the object has been modified; please apply your changes to the latest version"),
    429: ("TooManyRequests", "too many requests, please try again later"),
    500: ("InternalError", "an error on the server"),
}
RETRY_AFTER_SECONDS = 1
DROPPED = frozenset({"host", "transfer-encoding", "connection", "content-length", "content-encoding"})
START_SECONDS = 10


class FaultyServer:
    """A context manager; `calls` and `faults` count.

    Attributes:
        calls: Requests that came in.
        faults: Of these, answered with an error of the proxy's own.
        share: The share of calls that fail, 0 to 1; may be changed at any time.
    """

    def __init__(self, server: str, *, authority: Path, client: KeyPair, share: float, seed: int) -> None:
        """Prepare; nothing runs yet.

        Args:
            server: URL of the API server.
            authority: Certificate that signed the server's.
            client: Certificate to go on with.
            share: See the attribute.
            seed: Of the choice of calls, so that a run can be repeated.
        """
        self.calls = self.faults = 0
        self.share = share
        self._server, self._authority, self._client = server, authority, client
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(START_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(START_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def kubeconfig(self, file: Path) -> Path:
        """Write a kubeconfig that leads here."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "faulty", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "operator", "user": {}}],
            "contexts": [{"name": "faulty", "context": {"cluster": "faulty", "user": "operator"}}],
            "current-context": "faulty",
        }
        file.write_text(yaml.safe_dump(document))
        return file

    async def _start(self) -> None:
        context = ssl.create_default_context(cafile=str(self._authority))
        context.load_cert_chain(self._client.certificate, self._client.key)
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.calls += 1
        if self._random.random() < self.share:
            self.faults += 1
            return self._fault(self._random.choice(list(STATUS)))
        headers = {name: value for name, value in request.headers.items() if name.lower() not in DROPPED}
        timeout = aiohttp.ClientTimeout(total=None, sock_read=None)
        async with self._session.request(
            request.method,
            self._server + request.raw_path,
            headers=headers,
            data=await request.read(),
            timeout=timeout,
        ) as answer:
            response = web.StreamResponse(status=answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in DROPPED - {"content-encoding"}:
                    response.headers[name] = value
            with contextlib.suppress(ConnectionResetError):  # the operator has left
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
            return response

    @staticmethod
    def _fault(code: int) -> web.Response:
        reason, message = STATUS[code]
        headers = {"Retry-After": str(RETRY_AFTER_SECONDS)} if code == 429 else {}
        body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message}
        return web.json_response({**body, "code": code}, status=code, headers=headers)
