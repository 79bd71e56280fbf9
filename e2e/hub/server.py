"""The two listeners, hub and storage, each a thread; what they are asked is kept for tests to look at."""

from __future__ import annotations

import abc
import json
import re
import ssl
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from e2e.hub.faults import Faults
from e2e.hub.repository import File, Repository

CHUNK_BYTES = 1 << 16
API = re.compile(r"/api/models/(?P<name>[^/]+(?:/[^/]+)?)(?:/revision/(?P<revision>[^/]+))?")
RESOLVE = re.compile(r"/(?P<name>[^/]+(?:/[^/]+)?)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass(frozen=True)
class Request:
    """One request that came in.

    Attributes:
        host: `hub` or `storage`.
        method: GET or HEAD.
        path: Without the query.
        token: The bearer token that came along.
        start: First byte asked for; None without a Range.
    """

    host: str
    method: str
    path: str
    token: str | None
    start: int | None


class Hub:
    """A hub on two free ports of one address, up from `with` to its end.

    Args:
        repositories: What it serves.
        address: Where it listens and what its URLs name.
        tokens: Tokens that are valid; those of the repositories are too.
        tls: Certificate of the hub's listener; without it the hub speaks plain HTTP.
    """

    def __init__(
        self,
        repositories: Iterable[Repository],
        *,
        address: str = "127.0.0.1",
        tokens: Iterable[str] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.repositories = {repository.name: repository for repository in repositories}
        self.tokens = {*tokens, *(token for one in self.repositories.values() for token in one.tokens)}
        self.faults = Faults()
        self.requests: list[Request] = []
        self.lock = threading.Lock()
        self._hub = _Listener((address, 0), _HubHandler, self, "hub")
        self._storage = _Listener((address, 0), _StorageHandler, self, "storage")
        if tls is not None:
            self._hub.socket = tls.wrap_socket(self._hub.socket, server_side=True, do_handshake_on_connect=False)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://{address}:{self._hub.server_port}"
        self.storage_url = f"http://{address}:{self._storage.server_port}"

    def __enter__(self) -> Self:
        for listener in (self._hub, self._storage):
            threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop listening; clients find nobody there."""
        for listener in (self._hub, self._storage):
            listener.shutdown()
            listener.server_close()

    def downloads(self, name: str, path: str) -> int:
        """Return how often the bytes of a file were asked for from the start."""
        return sum(1 for start in self.starts(name, path) if not start)

    def starts(self, name: str, path: str) -> list[int | None]:
        """Return where each download of a file began, in order; None without a Range."""
        file = self.repositories[name].files[path]
        places = {f"/{file.sha256}"} if self.repositories[name].is_lfs(path) else set()
        if not places:
            places = {f"/{name}/resolve/{revision}/{path}" for revision in self._revisions(name)}
        with self.lock:
            return [one.start for one in self.requests if one.method == "GET" and one.path in places]

    def _revisions(self, name: str) -> tuple[str, ...]:
        repository = self.repositories[name]
        return (*repository.branches, repository.commit)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[_Handler], hub: Hub, name: str) -> None:
        super().__init__(address, handler)
        self.hub = hub
        self.name = name

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that leave in the middle: tests kill them."""


class _Handler(BaseHTTPRequestHandler, abc.ABC):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        found = RANGE.fullmatch(self.headers.get("Range", ""))
        start = int(found[1]) if found else None
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        one = Request(self.server.name, self.command, path, token if scheme == "Bearer" else None, start)
        with self.hub.lock:
            self.hub.requests.append(one)
        self.answer(one)

    @abc.abstractmethod
    def answer(self, request: Request) -> None:
        """Send the response."""

    @property
    def hub(self) -> Hub:
        return self.server.hub

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Keep the log of the tests readable."""

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def send_file(self, file: File, request: Request, **headers: str) -> None:
        faults = self.hub.faults
        start = 0 if faults.no_ranges else request.start or 0
        if start >= file.size and request.start:
            self.reply(416, Content_Range=f"bytes */{file.size}")
            return
        self.send_response(200 if start == 0 and (faults.no_ranges or request.start is None) else 206)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if request.start is not None and not faults.no_ranges:
            self.send_header("Content-Range", f"bytes {start}-{file.size - 1}/{file.size}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(file.size - start))
        self.end_headers()
        if self.command == "GET":
            self._send_bytes(file, start)

    def _send_bytes(self, file: File, start: int) -> None:
        faults = self.hub.faults
        with self.hub.lock:
            corrupt = faults.corrupt_times > 0
            faults.corrupt_times -= corrupt
            left = faults.cut_after_bytes.pop(0) if faults.cut_after_bytes else file.size
        while start < file.size and left > 0:
            chunk = file.read(start, min(CHUNK_BYTES, left))
            start += len(chunk)
            left -= len(chunk)
            if corrupt and start == file.size:
                chunk = chunk[:-1] + bytes([chunk[-1] ^ 1])
            self.wfile.write(chunk)
            if faults.bytes_per_second:
                time.sleep(len(chunk) / faults.bytes_per_second)
        if start < file.size:
            self.close_connection = True


class _HubHandler(_Handler):
    """The hub: who may see what, and where the bytes are."""

    def answer(self, request: Request) -> None:
        faults = self.hub.faults
        with self.hub.lock:
            status = faults.statuses.pop(0) if faults.statuses else None
        if status is not None:
            self.reply(status, b"", **({"Retry_After": faults.retry_after} if faults.retry_after else {}))
            return
        if request.token is not None and request.token not in self.hub.tokens:
            self.refuse(401, message="Invalid credentials in Authorization header")
            return
        api, resolve = API.fullmatch(request.path), RESOLVE.fullmatch(request.path)
        match = api or resolve
        repository = self.hub.repositories.get(match["name"]) if match else None
        if match is None:
            self.refuse(404, message="Sorry, we can't find the page you are looking for.")
        elif repository is None or not self.may_see(repository, request.token):
            self.no_repository(request.token)
        elif not repository.knows(match["revision"] or "main"):
            self.refuse(404, code="RevisionNotFound", message=f"Invalid rev id: {match['revision']}")
        elif api:
            self.describe(repository)
        else:
            self.resolve(repository, match["path"], request)

    def may_see(self, repository: Repository, token: str | None) -> bool:
        return not repository.tokens or repository.gated or token in repository.tokens

    def no_repository(self, token: str | None) -> None:
        if token is None:  # whether it is private is nobody's business
            self.refuse(401, message="Invalid username or password.")
        else:
            self.refuse(404, code="RepoNotFound", message="Repository not found")

    def describe(self, repository: Repository) -> None:
        description = repository.description()
        if self.hub.faults.without_checksums:
            description["siblings"] = [{"rfilename": one["rfilename"]} for one in description["siblings"]]
        self.reply(200, json.dumps(description).encode(), Content_Type="application/json")

    def resolve(self, repository: Repository, path: str, request: Request) -> None:
        if repository.gated and request.token not in repository.tokens:
            status = 401 if request.token is None else 403
            self.refuse(status, code="GatedRepo", message=f"Access to model {repository.name} is restricted.")
            return
        file = repository.files.get(path)
        if file is None:
            self.refuse(404, code="EntryNotFound", message="Entry not found", X_Repo_Commit=repository.commit)
        elif repository.is_lfs(path):
            self.reply(
                302,
                Location=f"{self.hub.storage_url}/{file.sha256}?X-Signature=not-for-logs",
                X_Repo_Commit=repository.commit,
                X_Linked_Size=str(file.size),
                X_Linked_Etag=f'"{file.sha256}"',
            )
        else:
            self.send_file(file, request, ETag=f'"{file.git_sha1}"', X_Repo_Commit=repository.commit)

    def refuse(self, status: int, *, message: str, code: str | None = None, **headers: str) -> None:
        if code:
            headers["X_Error_Code"] = code
        body = json.dumps({"error": message}).encode()
        self.reply(status, body, X_Error_Message=message, Content_Type="application/json", **headers)


class _StorageHandler(_Handler):
    """The storage: whoever has the signed address gets the bytes."""

    def answer(self, request: Request) -> None:
        by_digest = {
            f"/{file.sha256}": file
            for repository in self.hub.repositories.values()
            for path, file in repository.files.items()
            if repository.is_lfs(path)
        }
        file = by_digest.get(request.path)
        if file is None or "X-Signature=" not in self.path:
            self.reply(403)
        else:
            self.send_file(file, request, ETag=f'"{file.sha256}"')
