"""A request that waits for its turn, as its client sees it.

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
    from penstock.limiter.client import Client
    from penstock.limiter.visit import Visit


class Turn:
    """See the module's docstring; a `Job` of its connection."""

    __slots__ = ("_client", "_go", "_left", "_request", "visit")

    def __init__(
        self,
        client: Client,
        request: Request,
        visit: Visit,
        *,
        go: Callable[[Client, Request, Visit], None],
        left: Callable[[Turn], None],
    ) -> None:
        """Begin to wait.

        Args:
            client: Whom the request is served for.
            request: What it sent.
            visit: What the request holds.
            go: Passes the request to the engine.
            left: Told when the client leaves.
        """
        self.visit = visit
        self._client = client
        self._request = request
        self._go = go
        self._left = left

    def granted(self) -> None:
        """Go to the engine."""
        self._go(self._client, self._request, self.visit)

    def refused(self, refused: Refused) -> None:
        """Tell the client that it cannot be served."""
        self._client.refuse(refused)

    def fail(self) -> None:
        """End the connection after a defect, and give back whatever the request still holds."""
        if self.visit.permit is None:
            self.visit.give_up()
        else:
            self.visit.end(None, served=False, whole=False, watch=None)
        self._client.transport.abort()

    def serve_instead(self, client: Client, request: Request) -> None:
        """Wait for another client, who asked the same."""
        self._client = client
        self._request = request

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
