"""The HTTP side: one ASGI application, run by uvicorn as vLLM's is, so framing and connection handling are the same.

Routes are a table. A request is authenticated, parsed, handed to its interface and counted; while it waits, the
connection is watched, and a client that leaves cancels the work.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from typing import Any

from e2e.fakevllm.faults import Fault, FaultError, Kind
from e2e.fakevllm.service import CutError
from e2e.fakevllm.wire import anthropic, chat, completions, responses, tokens
from e2e.fakevllm.wire.errors import BodyError, DrainingError, RequestError, UnreadableError
from e2e.fakevllm.wire.host import Answer, Document, Events, Host

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Interface = Callable[[Host, object, Mapping[str, str]], Awaitable[Answer]]

GUARDED = ("/v1", "/v2", "/inference", "/cohere")
UNCOUNTED = {"/metrics", "/health", "/load", "/ping", "/version", "/server_info", "/fault"}
METRICS_TYPE = b"text/plain; version=1.0.0; charset=utf-8"
INTERFACES: dict[str, Interface] = {
    "/v1/completions": completions.completions,
    "/v1/chat/completions": chat.chat,
    "/v1/responses": responses.responses,
    "/v1/messages": anthropic.messages,
    "/v1/messages/count_tokens": anthropic.count_tokens,
    "/tokenize": tokens.tokenize,
    "/detokenize": tokens.detokenize,
}
READS = {
    "/health": ("GET",),
    "/ping": ("GET", "POST"),
    "/version": ("GET",),
    "/load": ("GET",),
    "/metrics": ("GET",),
    "/v1/models": ("GET",),
}


class _Reply:
    """Sends one response and remembers what was sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.sent = 0

    async def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def body(self, data: bytes, *, more: bool = False) -> None:
        self.sent += len(data)
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def whole(
        self,
        status: int,
        data: bytes,
        *,
        kind: bytes | None,
        more: tuple[tuple[bytes, bytes], ...] = ((b"vary", b"Origin"),),
    ) -> None:
        headers = [(b"content-length", str(len(data)).encode())]
        if kind is not None:
            headers.append((b"content-type", kind))
        await self.start(status, [*headers, *more])
        await self.body(data)

    async def document(self, document: Document) -> None:
        text = json.dumps(document.body, ensure_ascii=False, separators=(",", ":"))
        more = ((b"vary", b"Origin"),) if document.varies else ()
        await self.whole(document.status, text.encode(), kind=b"application/json", more=more)

    async def events(self, events: Events, *, keep_alive_seconds: float) -> None:
        await self.start(200, [(b"content-type", b"text/event-stream; charset=utf-8"), (b"vary", b"Origin")])
        lines = events.lines
        upcoming = asyncio.ensure_future(anext(lines, None))
        try:
            while True:
                done, _ = await asyncio.wait({upcoming}, timeout=keep_alive_seconds or None)
                if not done:
                    await self.body(b": keep-alive\n\n", more=True)
                    continue
                line = upcoming.result()
                if line is None:
                    break
                await self.body(line.encode(), more=True)
                upcoming = asyncio.ensure_future(anext(lines, None))
        finally:
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)
            await lines.aclose()  # type: ignore[attr-defined]
        await self.body(b"")


class Application:
    """The ASGI application.

    Args:
        host: Model and engine.
        version: What `/version` says.
        api_keys: Keys any of which opens `/v1`; none means open.
        keep_alive_seconds: Silence in a stream after which a comment is sent; 0 for never.
    """

    def __init__(
        self, host: Host, *, version: str, api_keys: tuple[str, ...] = (), keep_alive_seconds: float = 0.0
    ) -> None:
        self._host = host
        self._version = version
        self._keys = [hashlib.sha256(key.encode()).digest() for key in api_keys]
        self._keep_alive_seconds = keep_alive_seconds
        self.on_refuse: Callable[[float], None] = lambda _seconds: None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one HTTP request, or follow the server's start and end, which uvicorn logs as it does for vLLM."""
        if scope["type"] == "lifespan":
            for moment in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{moment}.complete"})
            return
        began = time.monotonic()
        reply = _Reply(send)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        method, path = scope["method"], scope["path"]
        data = b""
        try:
            if path.startswith(GUARDED) and method != "OPTIONS" and not self._allowed(headers):
                await reply.whole(401, b'{"error":"Unauthorized"}', kind=b"application/json", more=())
                return
            data = await _read(receive)
            await _while_connected(self._route(reply, method, path, headers, data), receive)
        except CutError:
            return
        finally:
            if path not in UNCOUNTED and reply.status:
                known = method == "POST" if path in INTERFACES else method in READS.get(path, ())
                self._host.service.metrics.answered(
                    method=method,
                    handler=path if known else "none",
                    status=reply.status,
                    seconds=time.monotonic() - began,
                    received=len(data),
                    sent=reply.sent,
                )

    def _allowed(self, headers: Mapping[str, str]) -> bool:
        if not self._keys:
            return True
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = hashlib.sha256(key.encode("latin-1")).digest()
        matches = [secrets.compare_digest(given, known) for known in self._keys]
        return scheme.lower() == "bearer" and any(matches)

    async def _route(self, reply: _Reply, method: str, path: str, headers: Mapping[str, str], data: bytes) -> None:
        if path == "/fault":
            await reply.document(self._fault(method, data))
        elif path in INTERFACES:
            if method != "POST":
                await _wrong_method(reply, ("POST",))
            else:
                await self._ask(reply, path, headers, data)
        elif path in READS:
            if method not in READS[path]:
                await _wrong_method(reply, READS[path])
            else:
                await self._show(reply, path)
        else:
            await reply.document(Document({"detail": "Not Found"}, 404))

    async def _ask(self, reply: _Reply, path: str, headers: Mapping[str, str], data: bytes) -> None:
        host = self._host
        try:
            document = _parse(headers, data)
            if host.service.faults.hit(Kind.ERROR):
                raise RequestError("Internal server error", status=500, type="InternalServerError")
            answer = await INTERFACES[path](host, document, headers)
        except RequestError as error:
            answer = Document(error.body(), error.status, varies=not isinstance(error, DrainingError))
        if isinstance(answer, Events):
            await reply.events(answer, keep_alive_seconds=self._keep_alive_seconds)
        else:
            await reply.document(answer)

    async def _show(self, reply: _Reply, path: str) -> None:
        service = self._host.service
        if path in ("/health", "/ping"):
            await reply.whole(503 if service.dead else 200, b"", kind=None)
        elif path == "/metrics":
            await reply.whole(200, service.metrics.text(), kind=METRICS_TYPE)
        elif path == "/version":
            await reply.document(Document({"version": self._version}))
        elif path == "/load":
            await reply.document(Document({"server_load": 0}))
        else:
            await reply.document(tokens.models(self._host))

    def _fault(self, method: str, data: bytes) -> Document:
        faults = self._host.service.faults
        if method == "DELETE":
            faults.clear()
        else:
            try:
                fault = Fault.parse(json.loads(data))
            except (FaultError, ValueError) as error:
                return Document({"error": str(error)}, 400)
            if fault.kind is Kind.REFUSE:
                self.on_refuse(fault.seconds)
            else:
                faults.switch_on(fault)
        self._host.service.heed()
        return Document({"ok": True})


async def _wrong_method(reply: _Reply, allowed: tuple[str, ...]) -> None:
    more = ((b"allow", ", ".join(allowed).encode()), (b"vary", b"Origin"))
    await reply.whole(405, b'{"detail":"Method Not Allowed"}', kind=b"application/json", more=more)


def _parse(headers: Mapping[str, str], data: bytes) -> object:
    kind = headers.get("content-type", "").lower().split(";", maxsplit=1)[0]
    if kind != "application/json":
        raise BodyError(["Unsupported Media Type: Only 'application/json' is allowed"])
    if not data:
        raise BodyError([{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}])
    try:
        document: object = json.loads(data)
    except json.JSONDecodeError as error:
        raise BodyError(
            [
                {
                    "type": "json_invalid",
                    "loc": ("body", error.pos),
                    "msg": "JSON decode error",
                    "input": {},
                    "ctx": {"error": error.msg},
                }
            ]
        ) from None
    except UnicodeDecodeError:
        raise UnreadableError from None
    if document is None:
        raise BodyError([{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}])
    return document


async def _read(receive: Receive) -> bytes:
    parts = []
    more = True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def _while_connected(work: Coroutine[Any, Any, None], receive: Receive) -> None:
    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task, watch = asyncio.create_task(work), asyncio.create_task(gone())
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        for pending in (task, watch):
            pending.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)
