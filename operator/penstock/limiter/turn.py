"""A request that waits for its turn, as its connection sees it.

    event                       | what happens
    ----------------------------|------------------------------------------
    granted                     | it goes to the engine
    refused                     | the client is told
    the client leaves           | the place and the charge are given back

It happens once: the waiting room forgets a turn before it calls it, and from then on another job, or none, serves the
connection. While a request waits its client has no byte of an answer, so everything can still be decided, and a client
that has left is noticed like one whose request is at the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.limiter.refusal import Refused
from penstock.limiter.service import CONTINUE, Request

if TYPE_CHECKING:
    from penstock.limiter.connection import Connection
    from penstock.limiter.visit import Visit


class Turn:
    """See the module's docstring; a `Job` of its connection."""

    __slots__ = ("_connection", "_go", "_left", "_request", "visit")

    def __init__(
        self,
        connection: Connection,
        request: Request,
        visit: Visit,
        *,
        go: Callable[[Connection, Request, Visit], None],
        left: Callable[[Turn], None],
    ) -> None:
        """Begin to wait.

        Args:
            connection: The client's.
            request: What it sent.
            visit: What the request holds.
            go: Passes the request to the engine.
            left: Told when the client leaves.
        """
        self.visit = visit
        self._connection = connection
        self._request = request
        self._go = go
        self._left = left

    def granted(self) -> None:
        """Go to the engine."""
        self._go(self._connection, self._request, self.visit)

    def refused(self, refused: Refused) -> None:
        """Tell the client that it cannot be served."""
        self._connection.refuse(refused)

    def fail(self) -> None:
        """End the connection after a defect, and give back whatever the request still holds."""
        self.visit.end(None, served=False, whole=False, watch=None)
        self._connection.transport.abort()

    # ---- as a job

    def client_gone(self) -> None:
        """Give everything back."""
        self._left(self)

    def filler(self) -> bytes:
        """Return bytes that can be sent now without changing the response; see `Job.filler`."""
        return CONTINUE

    def client_paused(self) -> None:
        """Nothing is being written."""

    def client_resumed(self) -> None:
        """Nothing is being written."""
