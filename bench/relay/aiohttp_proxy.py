"""What most people would write in Python first: a streaming proxy with aiohttp on uvloop.

`python aiohttp_proxy.py PORT BACKEND_PORT`
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import uvloop
from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host", "content-length"}
SESSION: web.AppKey[ClientSession] = web.AppKey("session", ClientSession)
BACKEND: web.AppKey[str] = web.AppKey("backend", str)


async def relay(request: web.Request) -> web.StreamResponse:
    headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
    url = f"{request.app[BACKEND]}{request.rel_url}"
    async with request.app[SESSION].request(
        request.method, url, headers=headers, data=await request.read(), allow_redirects=False
    ) as upstream:
        kept = {name: value for name, value in upstream.headers.items() if name.lower() not in HOP_BY_HOP}
        response = web.StreamResponse(status=upstream.status, headers=kept)
        await response.prepare(request)
        async for piece in upstream.content.iter_any():
            await response.write(piece)
        await response.write_eof()
        return response


async def session(app: web.Application) -> AsyncIterator[None]:
    unlimited = ClientTimeout(total=None, sock_connect=5)
    connector = TCPConnector(limit=0)
    async with ClientSession(timeout=unlimited, connector=connector, auto_decompress=False) as client:
        app[SESSION] = client
        yield


def main(port: int, backend_port: int) -> None:
    app = web.Application(client_max_size=32 << 20)
    app[BACKEND] = f"http://127.0.0.1:{backend_port}"
    app.cleanup_ctx.append(session)
    app.router.add_route("*", "/{path:.*}", relay)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None, loop=runner.get_loop(), backlog=4096)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
