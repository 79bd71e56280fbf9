"""How a request that is under way is found again, without keeping it alive or being told of its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.limiter.connection import Connection
    from penstock.limiter.service import Request


class Trace:
    """Belongs to its request and ends with it; everybody else has weak references.

    Attributes:
        connection: The client's.
        since: When the request was complete.
        mark: Digest of the body, where that is needed.
    """

    __slots__ = ("__weakref__", "connection", "mark", "since")

    def __init__(self, connection: Connection, *, since: float, mark: bytes = b"") -> None:
        self.connection = connection
        self.since = since
        self.mark = mark

    @property
    def request(self) -> Request | None:
        """The request, while its connection is served for it."""
        request = self.connection.request
        return request if request is not None and request.trace is self else None
