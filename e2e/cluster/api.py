"""A few plain requests to a Kubernetes API server, enough to know whether a cluster works.

The connection is made by a function that the caller gives, because the server may live in another network namespace.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Callable
from typing import Any

from e2e.cluster.pki import Authority, KeyPair

TIMEOUT_SECONDS = 5

Connect = Callable[[str, int], socket.socket]


def connect(host: str, port: int) -> socket.socket:
    """Connect from this process's own network."""
    return socket.create_connection((host, port), timeout=TIMEOUT_SECONDS)


class Api:
    """Requests to one API server with one client certificate."""

    def __init__(
        self, host: str, port: int, *, authority: Authority, client: KeyPair, connect: Connect = connect
    ) -> None:
        self._address, self._connect = (host, port), connect
        self._context = ssl.create_default_context(cafile=str(authority.certificate))
        self._context.load_cert_chain(client.certificate, client.key)

    def get(self, path: str) -> tuple[int, str]:
        """Return status and text of a GET.

        Raises:
            OSError: Nobody answers, or somebody whose certificate is not of the cluster's authority.
        """
        host, port = self._address
        with self._context.wrap_socket(self._connect(host, port), server_hostname=host) as link:
            connection = http.client.HTTPConnection(host, port)
            connection.sock = link
            try:
                connection.request("GET", path, headers={"Connection": "close"})
                response = connection.getresponse()
                return response.status, response.read().decode(errors="replace")
            except http.client.HTTPException as error:
                raise ConnectionError(f"no HTTP answer: {error!r}") from error

    def unready(self) -> str | None:
        """Return None once the server says it is ready, else what it says is missing."""
        status, text = self.get("/readyz")
        return None if status == 200 else _failed_checks(text)

    def list(self, path: str) -> list[dict[str, Any]]:
        """Return the items of a list, none while the server refuses to give it."""
        status, text = self.get(path)
        return list(json.loads(text)["items"]) if status == 200 else []


def _failed_checks(text: str) -> str:
    failed = [line.split()[0].removeprefix("[-]") for line in text.splitlines() if line.startswith("[-]")]
    return f"not ready yet: {', '.join(failed)}" if failed else text.strip()[:200]
